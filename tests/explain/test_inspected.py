"""What docker inspect and podman inspect say, of containers and images, in the forms of their versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuhook.errors import BadBundle
from gpuhook.explain.decide import explain
from gpuhook.explain.inspected import from_inspect
from gpuhook.explain.model import Explanation

Node = Callable[..., str]
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
HOOKED = {"ociVersion": "1.0.2", "hooks": {"prestart": [{"path": "/usr/local/bin/gpuhook"}]}}


def told(config: str, item: dict[str, Any]) -> Explanation:
    [subject] = from_inspect(json.dumps([item]), "x")
    return explain(subject, config)


def container(*env: str, **host: Any) -> dict[str, Any]:
    """A container of Docker with these variables, and more of its HostConfig."""
    return {"Name": "/web", "Config": {"Env": list(env)}, "HostConfig": {"Runtime": "runc", **host}}


def gpus(**request: Any) -> dict[str, Any]:
    """What `--gpus` leaves there."""
    whole = {"Driver": "", "Count": 0, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}, **request}
    return {"DeviceRequests": [whole]}


@pytest.mark.parametrize(
    ("request_", "indices", "capabilities"),
    [
        ({"Count": -1}, ["0", "1"], ["compute", "utility"]),
        ({"Count": 1}, ["0"], ["compute", "utility"]),
        ({"DeviceIDs": ["1"], "Driver": "nvidia"}, ["1"], ["compute", "utility"]),
        ({"DeviceIDs": ["1"], "Capabilities": [["gpu", "utility"]]}, ["1"], ["utility"]),
        ({"Count": -1, "Capabilities": [["nvidia", "video", "x"]]}, ["0", "1"], ["video"]),
    ],
)
def test_gpus_are_asked_for_as_docker_does_it(
    request_: dict[str, Any], indices: list[str], capabilities: list[str], node: Node
) -> None:
    """HostConfig.DeviceRequests become the variables that dockerd sets."""
    found = told(node(), container("PATH=/bin", **gpus(**request_)))
    assert (found.container, found.verdict, found.uncalled) == ("web", "inject", "")
    assert [device.index for device in found.devices] == indices
    assert [one.name for one in found.capabilities if one.granted] == capabilities


@pytest.mark.parametrize("count", [0, None, "3", [], 2**70, 1e300])
def test_a_count_of_none_leaves_the_images_word_in_force(count: object, node: Node) -> None:
    """`--gpus 0` on an image that says all gives all; also where the count is none that Docker could have written."""
    found = told(node(), container(f"{VISIBLE}=all", **gpus(Count=count)))
    assert [device.index for device in found.devices] == ["0", "1"]
    assert "stays in force" in found.notes[0].text


def test_a_huge_count_is_no_huge_list(node: Node) -> None:
    """It is refused for the GPUs that are not there."""
    found = told(node(), container(**gpus(Count=10**8)))
    assert found.error is not None
    assert found.error.reference == "unknown-device"


@pytest.mark.parametrize("name", ["amd.com", "cdi", "x"])
def test_requests_of_other_drivers_are_not_ours(name: str, node: Node) -> None:
    """No variable comes of them."""
    found = told(node(), container(**gpus(Driver=name, Count=-1, DeviceIDs=["nvidia.com/gpu=all"])))
    assert found.verdict == "skip"
    assert ("by CDI" in found.summary) == (name == "cdi")


@pytest.mark.parametrize("runtime", ["runc", "crun", "io.containerd.runc.v2", "/usr/bin/runc"])
def test_a_container_whose_hook_nobody_calls_gets_no_tick(runtime: str, node: Node) -> None:
    """The commonest cause of all is in the verdict, and what to do below it."""
    found = told(node(), container(f"{VISIBLE}=all", Runtime=runtime))
    assert found.verdict == "inject"  # which is what the hook would do
    assert found.summary.startswith("no GPU hook is called for it")
    assert "without --gpus" in found.uncalled
    [warning] = found.warnings
    assert (warning.reference, "--gpus all" in warning.hint) == ("runtime-not-registered", True)


@pytest.mark.parametrize("runtime", ["nvidia", "gpu", "", "kata", "nvidia-container-runtime"])
def test_a_runtime_that_may_call_it_is_left_alone(runtime: str, node: Node) -> None:
    """Runtimes have the names that people give them."""
    found = told(node(), container(f"{VISIBLE}=all", Runtime=runtime))
    assert (found.uncalled, found.warnings) == ("", [])


def podman(tmp_path: Path, spec: object, runtime: str = "crun") -> dict[str, Any]:
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    return {
        "Name": "web",
        "OCIRuntime": runtime,
        "OCIConfigPath": str(tmp_path / "spec.json"),
        "BoundingCaps": ["CAP_CHOWN"],
        "Config": {"Env": [f"{VISIBLE}=0"], "Annotations": {"run.oci.hooks.stderr": "/dev/stderr"}},
        "HostConfig": {"Runtime": "oci", "CapAdd": [], "Devices": []},
        "Mounts": [],
    }


@pytest.mark.parametrize(
    ("spec", "runtime", "called"),
    [
        (HOOKED, "crun", True),
        ({"hooks": {"createRuntime": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}}, "runc", True),
        ({"ociVersion": "1.0.2"}, "crun", False),
        ({"ociVersion": "1.0.2", "hooks": {"prestart": "x", "poststop": [3, {"path": "/bin/true"}]}}, "runc", False),
        ({"ociVersion": "1.0.2"}, "/usr/local/bin/gpuhook-runtime", True),
        (None, "crun", True),  # nothing is known, nothing is said
    ],
)
def test_podmans_hooks_are_those_of_its_config_json(
    spec: object, runtime: str, called: bool, node: Node, tmp_path: Path
) -> None:
    """Its runtime's name says nothing: Podman puts hooks into the specification."""
    found = told(node(), podman(tmp_path, spec, runtime))
    assert (found.uncalled == "") == called
    assert [warning.reference for warning in found.warnings] == ([] if called else ["podman-hooks-dir"])


@pytest.mark.parametrize("runtime", ["runc", "crun"])
def test_a_description_from_another_machine_is_no_trouble(runtime: str, node: Node, tmp_path: Path) -> None:
    """Its config.json is not here."""
    item = {**podman(tmp_path, HOOKED, runtime), "OCIConfigPath": "/nowhere/config.json"}
    assert told(node(), item).warnings == []


def test_an_image_is_explained_by_its_variables(node: Node) -> None:
    """By docker image inspect, of all ages."""
    for key in ("Config", "ContainerConfig"):
        found = told(node(), {"RepoTags": ["cuda:12"], key: {"Env": [f"{VISIBLE}=1"]}, "Architecture": "amd64"})
        assert (found.container, found.uncalled) == ("cuda:12", "")
        assert [device.index for device in found.devices] == ["1"]
    assert told(node(), {"Id": "sha256:0", "RepoTags": [], "Config": None}).verdict == "skip"


@pytest.mark.parametrize(
    "item", [{"Name": "bridge", "Scope": "local", "Driver": "bridge"}, {"Mountpoint": "/v"}, {}, 3]
)
def test_networks_and_volumes_are_no_containers(item: object) -> None:
    """Docker inspect tells of those too, and nothing must be said of their GPUs."""
    with pytest.raises(BadBundle) as caught:
        from_inspect(json.dumps([{"Config": {}}, item]), "x")
    assert "entry 1 is neither" in caught.value.text
    assert "--type container" in caught.value.hint


def test_a_single_object_is_a_list_of_one(node: Node) -> None:
    """Docker inspect --format '{{json .}}'."""
    [subject] = from_inspect(json.dumps(container(f"{VISIBLE}=0", Runtime="nvidia")), "x")
    assert explain(subject, node()).verdict == "inject"


ODD: list[dict[str, Any]] = [
    {"Config": {"Env": {"A": 1}}},
    {"Config": {"Env": [1, None, "A", "=x"]}, "Name": ["x"], "RepoTags": 3},
    {"Config": [], "HostConfig": 5, "Mounts": [1, {}]},
    {"Config": {}, "HostConfig": {"DeviceRequests": [1, {"Capabilities": "gpu", "Count": "x", "DeviceIDs": 3}]}},
    {"Config": {"Env": [f"{VISIBLE}=0\udcff", "\ud800=1"]}, "Name": "/\udcff", "HostConfig": {"Runtime": 7}},
    {"Config": {"Env": [f"{VISIBLE}=0"]}, "GraphDriver": {"Data": {"MergedDir": "/proc/self/mem\0"}}},
]


@pytest.mark.parametrize("item", ODD)
def test_fields_of_other_types_do_no_harm(item: dict[str, Any], node: Node) -> None:
    """Whatever an engine of another age, or nobody, wrote."""
    assert told(node(), item).verdict in ("skip", "inject", "refuse")
    json.dumps(told(node(), item).model_dump())


def test_a_secret_of_nvidias_services_is_not_shown(node: Node) -> None:
    """Only what the hook reads is told, here and in every form."""
    found = told(
        node(), container(f"{VISIBLE}=0", "NVIDIA_API_KEY=nvapi-0123456789", "TOKEN=t0psecret", Runtime="nvidia")
    )
    assert [fact.what for fact in found.asked] == [VISIBLE]
    assert not any(word in found.model_dump_json() for word in ("nvapi", "t0psecret"))
