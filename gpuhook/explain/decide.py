"""The hook's own functions, called in the hook's order, with every step written down and nothing carried out."""

from __future__ import annotations

import posix

from gpuhook.backend.cli import configure_argv, look_around
from gpuhook.backend.start import cgroup_warnings, choose_program
from gpuhook.doctor.contained import findings
from gpuhook.doctor.contained.case import Case
from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node
from gpuhook.driver.model import Gpu, Inventory
from gpuhook.errors import GpuhookError
from gpuhook.explain import model
from gpuhook.explain.subject import Subject
from gpuhook.kernel.files import read_file
from gpuhook.oci.state import State
from gpuhook.refusals import BadRequirement
from gpuhook.request.build import build_request
from gpuhook.request.devices import choose_devices, is_legacy
from gpuhook.request.model import DeviceChoice, Request
from gpuhook.settings.decide import KEYS
from gpuhook.settings.load import load_settings
from gpuhook.settings.reader import read_toml
from gpuhook.settings.values import CAPABILITIES, Settings

BRINGS = {
    "compat32": "32-bit libraries of the other capabilities",
    "compute": "libcuda, OpenCL, MPS: CUDA programs",
    "display": "X11 and displays: nvidia-modeset",
    "graphics": "OpenGL and Vulkan libraries",
    "ngx": "NGX (DLSS) libraries",
    "utility": "nvidia-smi and NVML",
    "video": "video libraries: encode, decode, optical flow",
}
WATCHED = ("NVIDIA_", "CUDA_VERSION")
PID = 2**22  # stands for the container's process, which an explanation does not have


def explain(subject: Subject, config: str = "") -> model.Explanation:
    """The decision for a container. config: a file as with the hook's --config. Raises nothing of ours."""
    told = Telling(subject)
    try:
        told.decide(config)
    except GpuhookError as error:
        return told.refused(error)
    return told.done()


class Telling:
    """An explanation in the making."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.settings = Settings()
        self.parts: dict[str, object] = {"asked": [], "warnings": []}
        self.verdict, self.summary = "skip", ""
        self.request: Request | None = None

    def decide(self, config: str) -> None:
        """All steps, in the order of the hook."""
        bundle = self.subject.bundle
        try:
            self.settings = load_settings(config, posix.environ)
        except GpuhookError as error:
            choice, _ = choose_devices(bundle, self.settings)
            self._asked(choice)
            if choice is not None:
                raise
            self._warn(((error.reference, error.text),))
            self.summary = "no GPU is asked for; the configuration is broken, which harms only containers that ask"
            return
        self.parts["node"] = node_facts(self.settings)
        choice, warnings = choose_devices(bundle, self.settings)
        self._asked(choice)
        if choice is not None:
            self._warn(self.subject.remarks)
        if choice is None:
            self._warn(warnings)
            self.summary = why_not(self.subject, bool(warnings))
            return
        self.verdict = "inject"
        self.request = request = build_request(_state(self.subject), bundle, self.settings, choice, warnings)
        self._warn((*request.warnings, *cgroup_warnings(request, self.settings)))
        self.parts["capabilities"] = [capability(name, request, self.subject, self.settings) for name in CAPABILITIES]
        self._backend(request)

    def _asked(self, choice: DeviceChoice | None) -> None:
        counted = choice.sources if choice is not None else ()
        env = self.subject.bundle.env
        facts = [
            model.Fact(
                what=name,
                value=value[:200],
                where=self.subject.place(name),
                effect="decides the devices" if name in counted else "",
            )
            for name, value in env.items()
            if name.startswith(WATCHED) or name in self.settings.swarm_resource
        ]
        facts += [
            model.Fact(
                what="mount",
                value=mount.destination,
                where=self.subject.place(mount.destination),
                effect="decides the devices" if mount.destination in counted else "",
            )
            for mount in self.subject.bundle.mounts
            if "nvidia-container-devices" in mount.destination
        ]
        self.parts["asked"] = facts

    def _backend(self, request: Request) -> None:
        program = None
        if self.settings.backend != "embedded":
            program, _ = choose_program(self.settings, request.rootfs)
        if program is None:
            self.parts["backend"] = "the embedded engine"
            self._engine(request)
            return
        self.parts["backend"] = program.path
        around = look_around(self.settings)
        self._warn(around.warnings)
        argv = configure_argv(program, request, self.settings, around, debug=False)
        self.parts["command"] = [word.replace(f"--pid={PID}", "--pid=PID") for word in argv]
        self.parts["requirements"] = [
            model.Condition(source=r.source, expression=r.expression, verdict="left to nvidia-container-cli")
            for r in request.requirements
        ]
        devices = ", ".join(request.devices.names) or "none"
        self.summary = f"nvidia-container-cli is started for GPU {devices} with {' '.join(request.capabilities)}"

    def _engine(self, request: Request) -> None:
        from gpuhook.backend.engine import host_of, require_nodes, search_path
        from gpuhook.backend.survey import survey
        from gpuhook.plan.build import build_plan
        from gpuhook.plan.ops import Image

        settings = self.settings.with_(load_kmods=False)  # which would change the host
        inventory, chosen, warnings = survey(request, settings, host_of(settings), search_path())
        self._warn(warnings)
        gpus = [model.Device(index=str(g.index), uuid=g.uuid, model=g.model, bus_id=g.bus_id) for g in chosen.gpus]
        mig = [model.Device(index=f"MIG {d.index}", uuid=d.uuid, model="", bus_id="") for d in chosen.mig]
        self.parts["devices"] = [*gpus, *mig]
        self._requirements(request, inventory, chosen.gpus)
        require_nodes(request, inventory)
        plan = build_plan(request, inventory, chosen, Image())
        self.parts["plan"] = [op.describe() for op in plan.ops]
        self.parts["absent"] = list(inventory.missing)
        names = ", ".join(device.index for device in (*gpus, *mig)) or "none"
        self.summary = f"the container gets GPU {names} with {' '.join(request.capabilities) or 'no capability'}"

    def _requirements(self, request: Request, inventory: Inventory, gpus: tuple[Gpu, ...]) -> None:
        from gpuhook.backend.engine import check_requirements

        conditions: list[model.Condition] = []
        self.parts["requirements"] = conditions
        failed: GpuhookError | None = None
        for each in request.requirements:
            alone = request.with_(requirements=(each,))
            try:
                check_requirements(alone, inventory, gpus)
            except GpuhookError as error:
                verdict = "invalid" if isinstance(error, BadRequirement) else "fails"
                failed = failed or error
                conditions.append(
                    model.Condition.model_validate(
                        {"source": each.source, "expression": each.expression, "verdict": verdict, "why": error.text}
                    )
                )
            else:
                conditions.append(model.Condition(source=each.source, expression=each.expression, verdict="holds"))
        if failed is not None:
            raise failed

    def _warn(self, pairs: tuple[tuple[str, str], ...]) -> None:
        warnings = self.parts["warnings"]
        assert isinstance(warnings, list)  # noqa: S101  # made in __init__
        warnings += [problem(*pair) for pair in pairs]

    def _look(self) -> None:
        """What the checks of the doctor say of this container, where the hook's own words do not say it."""
        told = self.parts["warnings"]
        error = self.parts.get("error")
        assert isinstance(told, list)  # noqa: S101  # made in __init__
        known = {one.reference for one in [*told, *([error] if error else [])]}
        found = list(findings(Case(self.subject, self.settings, Node(), self.request)))
        new = [one for one in found if one.slug not in known]
        told += [_problem_of(one) for one in new if one.level in ("warning", "failure")]
        self.parts["notes"] = [_problem_of(one) for one in new if one.level == "note"]

    def refused(self, error: GpuhookError) -> model.Explanation:
        """The container would not start."""
        self.verdict, self.summary = "refuse", error.text
        self.parts["error"] = problem(error.reference, error.text, error.where, error.hint)
        return self.done()

    def done(self) -> model.Explanation:
        """The explanation."""
        self._look()
        head = {"container": self.subject.name, "source": self.subject.source}
        return model.Explanation.model_validate(
            {**head, "verdict": self.verdict, "summary": self.summary, **self.parts}
        )


def _state(subject: Subject) -> State:
    return State(pid=PID, bundle=subject.bundle.path, id=subject.name)


def problem(reference: str, text: str, where: str = "", hint: str = "") -> model.Problem:
    """A warning or an error as the model has it."""
    return model.Problem(reference=reference, text=text, where=where, hint=hint)


def _problem_of(finding: Finding) -> model.Problem:
    where = finding.evidence[0].where if finding.evidence else ""
    return problem(finding.slug, finding.text, where, "; ".join(finding.advice))


def why_not(subject: Subject, ignored: bool) -> str:  # noqa: FBT001  # one caller
    """Why a container is not a GPU container."""
    value = subject.bundle.env.get("NVIDIA_VISIBLE_DEVICES")
    if ignored:
        return "it asks for GPUs in a way that this node does not accept, and gets none; see the warnings"
    if value is None:
        return "no GPU is asked for: NVIDIA_VISIBLE_DEVICES is not set (try NVIDIA_VISIBLE_DEVICES=all)"
    if is_legacy(subject.bundle.env):
        return f"NVIDIA_VISIBLE_DEVICES is {value!r}, which means: no GPU, even for an image of that age"
    return f"NVIDIA_VISIBLE_DEVICES is {value!r}, which means: leave this container alone"


def capability(name: str, request: Request, subject: Subject, settings: Settings) -> model.Capability:
    """Whether a capability is granted, and by whose word."""
    granted = name in request.capabilities
    value = subject.bundle.env.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if name not in settings.supported_driver_capabilities:
        why = f"not in supported-driver-capabilities of {settings.source}"
    elif value.strip(" ,"):
        why = f"NVIDIA_DRIVER_CAPABILITIES={value[:80]}"
    elif granted and name not in ("compute", "utility"):
        why = "an image with CUDA_VERSION alone gets all of them"
    else:
        why = "NVIDIA_DRIVER_CAPABILITIES is not set, which means compute,utility"
    return model.Capability(name=name, granted=granted, brings=BRINGS[name], why=why)


def node_facts(settings: Settings) -> list[model.Fact]:
    """What this node's configuration says otherwise than the defaults, with file and line."""
    names = [
        name for name in Settings.fields() if name in KEYS and getattr(settings, name) != getattr(Settings(), name)
    ]
    if not names:
        return []
    document = read_toml(read_file(settings.source, 1 << 20, links=True)[0], settings.source)
    return [
        model.Fact(
            what=KEYS[name],
            value=_shown(getattr(settings, name)),
            where=f"{settings.source}:{document.line(*KEYS[name].split('.'))}",
        )
        for name in names
    ]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
