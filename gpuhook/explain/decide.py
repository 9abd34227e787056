"""The hook's own functions, called in the hook's order, with every step written down and nothing carried out."""

from __future__ import annotations

import posix

from gpuhook.backend.cli import configure_argv, look_around
from gpuhook.backend.start import cgroup_warnings, choose_program, require_channels
from gpuhook.doctor.contained import findings
from gpuhook.doctor.contained.case import Case
from gpuhook.doctor.model import Finding
from gpuhook.doctor.node import Node
from gpuhook.driver.model import Gpu, Inventory
from gpuhook.errors import GpuhookError
from gpuhook.explain import model
from gpuhook.explain.executable import require_executable
from gpuhook.explain.subject import Subject
from gpuhook.explain.words import capability, node_facts, why_not
from gpuhook.hook import is_tegra
from gpuhook.oci.state import State
from gpuhook.refusals import BadRequirement
from gpuhook.request.build import build_request
from gpuhook.request.devices import choose_devices
from gpuhook.request.model import DeviceChoice, Request
from gpuhook.settings.load import load_settings
from gpuhook.settings.values import CAPABILITIES, Settings

# What the hook reads. Other variables of NVIDIA's may be secrets (keys of its services) and are not shown.
READ = (
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_GDS",
    "NVIDIA_GDRCOPY",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
    "CUDA_VERSION",
)
BEGINNINGS = ("NVIDIA_REQUIRE_", "NVIDIA_MIG_")
JUDGED = ("requirement-cuda", "requirement-alternatives")
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
            self._tell(self.subject)
        if choice is None:
            self._warn(warnings)
            self.summary = why_not(self.subject, bool(warnings))
            return
        self.verdict = "inject"
        tegra = self.settings.mode == "auto" and is_tegra()
        self.request = request = build_request(
            _state(self.subject), bundle, self.settings, choice, warnings, platform_is_tegra=tegra
        )
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
            if name in (*READ, *self.settings.swarm_resource) or name.startswith(BEGINNINGS)
            if name in counted or name not in self.subject.stand_ins
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
            if mount.destination in counted or mount.destination not in self.subject.stand_ins
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
        require_channels(program, request)
        around = look_around(self.settings)
        self._warn(around.warnings)
        argv = configure_argv(program, request, self.settings, around, debug=False)
        require_executable(argv)
        self.parts["command"] = [word.replace(f"--pid={PID}", "--pid=PID") for word in argv]
        self.parts["requirements"] = [
            model.Condition(source=r.source, expression=r.expression, verdict="left to nvidia-container-cli")
            for r in request.requirements
        ]
        devices = ", ".join(request.devices.names) or "none"
        self.summary = f"nvidia-container-cli is started for GPU {devices} with {', '.join(request.capabilities)}"

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
        names = ", ".join(device.index for device in (*gpus, *mig))
        what = f"GPU {names}" if names else "the driver's files and no GPU,"
        self.summary = f"{what} with {', '.join(request.capabilities) or 'no capability'}"

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

    def _warn(self, pairs: tuple[tuple[str, ...], ...]) -> None:
        warnings = self.parts["warnings"]
        assert isinstance(warnings, list)  # noqa: S101  # made in __init__
        warnings += [problem(*pair) for pair in pairs]

    def _tell(self, subject: Subject) -> None:
        """What the description shows besides the request."""
        self._warn(subject.remarks)
        self.parts["notes"] = [problem(*pair) for pair in subject.notes]
        if subject.uncalled is not None:
            slug, text, advice = subject.uncalled
            self.parts["uncalled"] = text
            self._warn(((slug, text, "", advice),))

    def _look(self) -> None:
        """What the checks of the doctor say of this container, where the hook's own words do not say it."""
        told = self.parts["warnings"]
        error = self.parts.get("error")
        assert isinstance(told, list)  # noqa: S101  # made in __init__
        known = {one.reference for one in [*told, *([error] if error else [])]}
        known |= set(JUDGED) if self.parts.get("devices") else set()  # the driver itself was asked
        found = list(findings(Case(self.subject, self.settings, Node(), self.request)))
        new = [one for one in found if one.slug not in known]
        told += [_problem_of(one) for one in new if one.level in ("warning", "failure")]
        notes = self.parts.setdefault("notes", [])
        assert isinstance(notes, list)  # noqa: S101  # made here
        notes += [_problem_of(one) for one in new if one.level in ("note", "skipped")]

    def refused(self, error: GpuhookError) -> model.Explanation:
        """The container would not start."""
        self.verdict, self.summary = "refuse", error.text
        self.parts["error"] = problem(error.reference, error.text, error.where, error.hint)
        return self.done()

    def done(self) -> model.Explanation:
        """The explanation."""
        self._look()
        if self.verdict == "inject":
            self.summary = "; ".join(text for text in (self.summary, self.subject.caveat) if text)
        if self.verdict == "inject" and self.parts.get("uncalled"):
            self.summary = f"no GPU hook is called for it; with one it would get {self.summary}"
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
