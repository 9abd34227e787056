"""Pods, and whatever makes pods: what their containers ask for, and what is not known from here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gpuhook.errors import BadBundle
from gpuhook.explain.decide import explain
from gpuhook.explain.model import Explanation
from gpuhook.explain.pod import from_pod

Node = Callable[..., str]
STRICT = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts = true\n"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def gpu(count: object = "1", resource: str = "nvidia.com/gpu", **more: Any) -> dict[str, Any]:
    """A container with a limit of GPUs."""
    return {"name": "main", "resources": {"limits": {resource: count, "cpu": "2"}}, **more}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def told(value: object, config: str) -> list[Explanation]:
    """The explanations of all its containers."""
    return [explain(subject, config) for subject in from_pod(json.dumps(value), "x")]


@pytest.mark.parametrize("config", ["", MOUNTS, STRICT + MOUNTS])
def test_a_limit_asks_for_gpus(config: str, node: Node) -> None:
    """The device plugin names them when the pod is placed; until then the first ones stand for its choice."""
    [found] = told(pod(gpu("2"), runtimeClassName="nvidia"), node(config))
    assert (found.verdict, [device.index for device in found.devices]) == ("inject", ["0", "1"])
    assert "the device plugin chooses for nvidia.com/gpu: 2, and GPU 0, 1 stand for it here" in found.summary
    assert all("resources.limits: nvidia.com/gpu: 2" in fact.where for fact in found.asked)
    assert found.warnings == found.notes == []


def test_a_node_that_takes_no_request_is_told(node: Node) -> None:
    """Neither variable nor mount: that pod gets nothing here."""
    [found] = told(pod(gpu()), node(STRICT))
    assert found.verdict == "skip"
    assert [warning.reference for warning in found.warnings] == ["strict-mode-mismatch"]


@pytest.mark.parametrize("count", ["0", 0, "", "x", None, -1, "1e9", "9" * 5000, [], {}])
def test_a_limit_that_is_no_number_of_gpus_asks_for_none(count: object, node: Node) -> None:
    """Whatever it is."""
    assert [one.verdict for one in told(pod(gpu(count)), node())] == ["skip"]


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"name": "a"}, f"{VISIBLE} is not set here; its image may set it (try"),
        ({"name": "a", "envFrom": [{"configMapRef": {"name": "c"}}]}, "so may envFrom"),
        ({"name": "a", "env": [{"name": VISIBLE, "valueFrom": {"secretKeyRef": {}}}]}, "(valueFrom)"),
        (gpu(resource="nvidia.com/mig-1g.10gb"), "the device plugin asks for nvidia.com/mig-1g.10gb: 1"),
    ],
)
def test_what_is_not_known_from_here_is_said(container: dict[str, Any], words: str, node: Node) -> None:
    """Never that no GPU is asked for, where somebody else may ask."""
    [found] = told(pod(container), node())
    assert found.verdict == "skip"
    assert words in found.summary


def test_a_variable_of_its_own_passes_by_the_scheduler(node: Node) -> None:
    """It counts, and there is a warning; and a note where the hook may not be called at all."""
    [found] = told(pod({"name": "a", "env": [{"name": VISIBLE, "value": "1"}]}), node())
    assert [device.index for device in found.devices] == ["1"]
    assert [warning.reference for warning in found.warnings] == ["env-all-exposes"]
    assert ["runtimeClassName" in note.text for note in found.notes] == [True]


def test_mounts_of_the_null_device_count(node: Node) -> None:
    """As a pod writes them: volumes of the host."""
    path = "/var/run/nvidia-container-devices/1"
    one = {"name": "a", "volumeMounts": [{"name": "v", "mountPath": path}]}
    [found] = told(pod(one, volumes=[{"name": "v", "hostPath": {"path": "/dev/null"}}]), node(STRICT + MOUNTS))
    assert [device.index for device in found.devices] == ["1"]


@pytest.mark.parametrize(
    "holder",
    [
        lambda one: one,
        lambda one: [one],
        lambda one: {"kind": "List", "items": [one]},
        lambda one: {"kind": "List", "items": [{"kind": "PodList", "items": [one]}]},
        lambda one: {"kind": "Deployment", "metadata": {"name": "p"}, "spec": {"replicas": 2, "template": one}},
        lambda one: {"kind": "PodTemplate", "metadata": {"name": "p"}, "template": one},
        lambda one: {
            "kind": "CronJob",
            "metadata": {"name": "p"},
            "spec": {"jobTemplate": {"spec": {"template": one}}},
        },
    ],
)
def test_all_kinds_of_pods_are_read(holder: Callable[[dict[str, Any]], object], node: Node) -> None:
    """Containers of every sort, in the order in which they start."""
    one = pod(gpu(), initContainers=[{"name": "init"}], ephemeralContainers=[{"name": "debug"}])
    assert [each.container for each in told(holder(one), node())] == ["p/init", "p/main", "p/debug"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "x",
        [],
        {},
        {"items": []},
        {"spec": []},
        {"spec": {"containers": [1, None, []]}},
        {"spec": {"template": 1}},
    ],
)
def test_what_is_no_pod_is_refused(value: object) -> None:
    """With the way to one."""
    with pytest.raises(BadBundle) as caught:
        from_pod(json.dumps(value), "x")
    assert "kubectl get pod" in caught.value.hint


def test_yaml_is_refused_with_the_way_to_json() -> None:
    """What people have at hand first."""
    with pytest.raises(BadBundle) as caught:
        from_pod("apiVersion: v1\nkind: Pod\n", "x")
    assert "-o json" in caught.value.hint


def test_odd_fields_do_no_harm(node: Node) -> None:
    """Wrong types everywhere."""
    odd = {
        "name": 5,
        "env": [1, {"name": None, "value": 2}, {"name": VISIBLE, "value": None}],
        "resources": [],
        "securityContext": 3,
        "volumeMounts": [None, {"mountPath": 4}],
    }
    assert [one.verdict for one in told(pod(odd, volumes="x"), node())] == ["skip"]
