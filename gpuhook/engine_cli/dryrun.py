"""`configure --dry-run`: the plan in lines for a person, or as JSON for a program."""

from __future__ import annotations

from gpuhook.engine_cli.command import say
from gpuhook.errors import printable
from gpuhook.plan.ops import Allow, CacheEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.backend.engine import Prepared
    from gpuhook.plan.ops import Op


def print_plan(prepared: Prepared, *, as_json: bool) -> None:
    """Print every operation in its order; device rules only where they would be written."""
    ops = [op for op in prepared.plan.ops if prepared.with_rules or not isinstance(op, Allow)]
    if as_json:
        from json import dumps

        say(1, f"{dumps(plan_table(prepared, ops), indent=2, ensure_ascii=False)}\n")
        return
    say(1, "".join(f"{printable(op.describe())}\n" for op in ops))


def plan_table(prepared: Prepared, ops: list[Op]) -> dict[str, object]:
    """The plan as JSON has it."""
    return {
        "driver_version": prepared.inventory.driver_version,
        "rootfs": prepared.request.rootfs,
        "gpus": [gpu.uuid or gpu.bus_id for gpu in prepared.gpus],
        "operations": [op_table(op) for op in ops],
        "warnings": [{"reference": reference, "text": text} for reference, text in prepared.plan.warnings],
        "notes": list(prepared.plan.notes),
    }


def op_table(op: Op) -> dict[str, object]:
    """An operation: its kind, then its fields by name."""
    table: dict[str, object] = {"operation": type(op).__name__.lower()}
    return {**table, **{name: plain(getattr(op, name)) for name in op.fields()}}


def plain(value: object) -> object:
    """A field's value as JSON can hold it."""
    if isinstance(value, CacheEntry):
        return {name: getattr(value, name) for name in value.fields()}
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
