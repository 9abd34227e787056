"""What Kubernetes' device plugin and kubelet expect of this node, and what they do to containers."""

from __future__ import annotations

from collections.abc import Iterator

from gpuhook.doctor.engines import cgroup_version, kubelet_setting, kubelets, present, registered
from gpuhook.doctor.facts import place_of, settings_of
from gpuhook.doctor.model import Finding, tell
from gpuhook.doctor.node import Node, Unreadable
from gpuhook.doctor.registry import check

PLUGINS = ("nvidia-device-plugin", "k8s-device-plugin")


def device_plugin(node: Node) -> dict[str, str]:
    """Options of NVIDIA's device plugin that runs here, {} where none does. Raises Unreadable."""
    for process in node.processes(*PLUGINS):
        if process.environ is None and not process.option("--device-list-strategy"):
            raise Unreadable(f"cannot read /proc/{process.pid}/environ: it takes root")
        said = process.environ or {}
        strategy = process.option("--device-list-strategy") or said.get("DEVICE_LIST_STRATEGY", "envvar")
        specs = process.option("--pass-device-specs") or said.get("PASS_DEVICE_SPECS", "")
        specs = "true" if "--pass-device-specs" in process.argv else specs
        return {"pid": str(process.pid), "strategy": strategy, "specs": specs}
    return {}


@check("strict-mode-mismatch", family="kubernetes")
def strategy(node: Node) -> Iterator[Finding]:
    """The node accepts devices in the way in which the device plugin asks for them."""
    plugin, settings = device_plugin(node), settings_of(node)
    if not plugin:
        return
    key = "accept-nvidia-visible-devices-as-volume-mounts"
    if "volume-mounts" in plugin["strategy"] and not settings.accept_volume_mounts:
        text = "the device plugin asks for devices by volume mounts, which this node does not accept"
    elif plugin["strategy"] == "envvar" and not settings.accept_envvar_when_unprivileged:
        key = "accept-nvidia-visible-devices-envvar-when-unprivileged"
        text = "the device plugin asks for devices by variable, which this node ignores in unprivileged containers"
    else:
        yield tell("strict-mode-mismatch", "ok", f"the node accepts the device plugin's {plugin['strategy']}")
        return
    yield tell(
        "strict-mode-mismatch",
        "failure",
        text,
        (f"device plugin (pid {plugin['pid']}): --device-list-strategy", plugin["strategy"]),
        (place_of(node, key), f"{key} = false", "true"),
        advice=f"set {key} = true in {settings.source or place_of(node, key)}, or change the device plugin's strategy",
    )


def is_default(node: Node) -> str:
    """The engine whose default runtime is a GPU runtime, "" for none. Raises Unreadable."""
    for engine in ("containerd", "crio", "docker"):
        if present(node, engine) and any(one.default for one in registered(node, engine)):
            return engine
    return ""


@check("env-all-exposes", family="later")
def everybody_gets_all(node: Node) -> Iterator[Finding]:
    """On a Kubernetes node no image can give itself GPUs that the scheduler did not give it."""
    if not kubelets(node) or not settings_of(node).accept_envvar_when_unprivileged:
        return
    engine = is_default(node)
    if engine:
        key = "accept-nvidia-visible-devices-envvar-when-unprivileged"
        yield tell(
            "env-all-exposes",
            "warning",
            "any pod whose image sets NVIDIA_VISIBLE_DEVICES=all gets every GPU of this node",
            (f"{engine}: default runtime", next(one.name for one in registered(node, engine) if one.default)),
            (place_of(node, key), f"{key} = true", "false"),
            advice=(
                f"{key} = false and accept-nvidia-visible-devices-as-volume-mounts = true",
                "and the device plugin with --device-list-strategy=volume-mounts",
                "or no default runtime, and a RuntimeClass for pods with GPUs",
            ),
        )


@check("cgroup-update-loses-gpu", family="later")
def updates(node: Node) -> Iterator[Finding]:
    """Nothing on this node rewrites the device rules of running containers."""
    policy = kubelet_setting(node, "cpuManagerPolicy") if kubelets(node) else ""
    if policy != "static" or cgroup_version(node) == 2:
        return
    plugin = device_plugin(node)
    if plugin.get("specs", "").lower() == "true":
        return
    yield tell(
        "cgroup-update-loses-gpu",
        "warning",
        "this kubelet updates containers (static CPU manager), which takes their GPUs away with cgroup v1",
        ("kubelet: cpuManagerPolicy", "static"),
        ("device plugin: PASS_DEVICE_SPECS", plugin.get("specs") or "not set", "true"),
        advice=(
            "use the gpuhook runtime, which puts the devices into the container's specification",
            "or the device plugin with PASS_DEVICE_SPECS=true",
        ),
    )
