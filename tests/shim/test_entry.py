"""`gpuhook-runtime` as engines meet it: what it passes on, what it says, and what it never stops."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from gpuhook import __version__, failures
from gpuhook.runtime import entry
from gpuhook.settings import snapshot
from tests.rig.process import PATH, run
from tests.shim.stand import Stand, hooks_of, write_program

ALL = "NVIDIA_VISIBLE_DEVICES=all"
OTHERS = [
    ("state", "c1"),
    ("kill", "c1", "KILL"),
    ("delete", "--force", "c1"),
    ("start", "c1"),
    ("exec", "c1", "create"),
    ("delete", "create"),
    ("--root", "create", "state", "x"),
    ("restore", "-b", "/nowhere", "c1"),
    ("features",),
    ("--help",),
    ("create", "--help"),
    (),
]


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_everything_else_is_passed_on(stand: Stand, words: tuple[str, ...]) -> None:
    """With the same words, and nothing of ours on either stream."""
    result = stand.run(*words)
    assert (result.status, result.stdout, result.stderr, stand.argv) == (0, "", "", [stand.runc, *words])


@pytest.mark.parametrize("words", [("create", "", "a b", "*", "\n", "ü"), ("state", "", "a b", "$x", "'", "\\")])
def test_words_arrive_as_they_are(stand: Stand, words: tuple[str, ...]) -> None:
    """Empty ones, blanks, patterns and whatever else a shell would look into."""
    bundle = stand.bundle()
    stand.run(*words, cwd=str(bundle))
    assert stand.argv == [stand.runc, *words]


def test_words_need_not_be_text(stand: Stand) -> None:
    """Bytes that are not UTF-8 pass through Python too."""
    bundle = stand.bundle(ALL)
    odd = os.fsdecode(b"c\xff")
    stand.run("create", odd, cwd=str(bundle))
    assert stand.argv == [stand.runc, "create", odd]
    assert len(hooks_of(bundle)) == 1


@pytest.mark.parametrize("words", [("create", "c1"), ("run", "c1"), ("kill", "create")])
@pytest.mark.parametrize("status", [0, 1, 42])
def test_the_status_is_the_low_level_runtimes(stand: Stand, words: tuple[str, ...], status: int) -> None:
    """We are gone by then."""
    stand.runtime("runc", status)
    assert stand.run(*words, cwd=str(stand.bundle(ALL))).status == status


def test_the_environment_stays(stand: Stand) -> None:
    """But for the variable that tells of loops."""
    given = {"PATH": PATH, "NVIDIA_CTK_CONFIG_FILE_PATH": stand.config(), "LD_X": "1", "PYTHONPATH": "/x", "A": "ü"}
    stand.run("create", "c1", env=given, cwd=str(stand.bundle(ALL)))
    got = {name: value for name, value in stand.environ.items() if name not in ("PWD", "OLDPWD", "SHLVL", "_")}
    assert got == {**given, "GPUHOOK_RUNTIME_DEPTH": "x"}


@pytest.mark.parametrize(
    "text", ["x", "[nvidia-container-runtime]\nruntimes = 5", "[nvidia-container-runtime]\nmode = 'bogus'", None]
)
@pytest.mark.parametrize("words", [("state", "c1"), ("kill", "c1"), ("delete", "-f", "c1"), ("delete", "create")])
def test_a_broken_config_never_stops_them(stand: Stand, text: str | None, words: tuple[str, ...]) -> None:
    """The usual runtime is called, in silence: engines read both streams of `state` (case config-stray-text)."""
    config = str(stand.folder / "absent.toml") if text is None else stand.write("bad.toml", text)
    result = stand.run(*words, config=config, env={"PATH": str(stand.folder)})
    assert (result.status, result.stdout, result.stderr, stand.argv) == (0, "", "", [stand.runc, *words])


def test_an_unsafe_config_never_stops_them(stand: Stand) -> None:
    """It is not obeyed either."""
    config = stand.config(runtimes=[stand.runtime("evil")])
    os.chmod(config, 0o666)
    result = stand.run("kill", "c1", config=config, env={"PATH": str(stand.folder)})
    assert (result.status, result.stderr, stand.argv) == (0, "", [stand.runc, "kill", "c1"])


@pytest.mark.parametrize("runtimes", [[], ["/nowhere/runc"], ["no-such-runtime"]])
def test_a_list_that_leads_nowhere_never_stops_them(stand: Stand, runtimes: list[str]) -> None:
    """What makes containers is refused, with every candidate's reason."""
    config, env = stand.config(runtimes=runtimes), {"PATH": str(stand.folder)}
    result = stand.run("delete", "c1", config=config, env=env)
    assert (result.status, result.stderr, stand.argv) == (0, "", [stand.runc, "delete", "c1"])
    result = stand.create(stand.bundle(), config=config, env=env)
    assert (result.status, stand.argv) == (1, None)
    assert result.stderr.startswith("gpuhook: low-level-runtime: no low-level runtime can be used: ")


def test_the_log_tells_of_a_broken_config(stand: Stand) -> None:
    """In the runtime's own log, where it disturbs nobody."""
    config, log = stand.write("bad.toml", "x"), stand.folder / "log.json"
    env = {"PATH": str(stand.folder)}
    stand.run("--log", log, "--log-format", "json", "kill", "c1", config=config, env=env)
    entry = json.loads(log.read_text())
    assert entry["level"] == "warning"
    assert entry["msg"].startswith("gpuhook: config-toml-broken: ")
    assert f"{config}:1" in entry["msg"]


def test_a_broken_config_stops_gpu_containers_only(stand: Stand) -> None:
    """One that asks for no GPU starts, with a warning; one that does fails with file and line (decisions.md 3)."""
    config, env = stand.write("bad.toml", "\nx"), {"PATH": str(stand.folder)}
    result = stand.create(stand.bundle(), config=config, env=env)
    assert (result.status, stand.argv is not None) == (0, True)
    assert result.stderr.startswith("gpuhook: warning: config-toml-broken: ")
    assert f"{config}:2" in result.stderr
    bundle = stand.bundle(ALL)
    result = stand.create(bundle, config=config, env=env)
    assert (result.status, stand.argv, hooks_of(bundle)) == (1, None, [])
    assert result.stderr.startswith("gpuhook: config-toml-broken: ")
    assert f"{config}:2" in result.stderr


def test_engines_find_the_error_in_the_runtimes_log(stand: Stand) -> None:
    """The last line of level error is what docker shows to its user."""
    log = stand.folder / "log.json"
    bundle = stand.bundle("NVIDIA_VISIBLE_DEVICES=-x")
    result = stand.create(bundle, "--log", str(log), "--log-format", "json")
    assert (result.status, stand.argv) == (1, None)
    assert result.stderr.startswith("gpuhook: unknown-device: unknown device '-x'")
    entry = json.loads(log.read_text().splitlines()[-1])
    assert (entry["level"], entry["msg"].startswith("gpuhook: unknown-device: unknown device '-x'")) == ("error", True)


def test_what_was_decided_is_in_the_log(stand: Stand) -> None:
    """One line for a GPU container at the usual level, none for others."""
    log = stand.folder / "shim.log"
    config = stand.config(debug=str(log))
    stand.create(stand.bundle(), config=config)
    assert not log.exists()
    stand.create(stand.bundle("NVIDIA_VISIBLE_DEVICES=0,1"), config=config)
    assert log.read_text().endswith('level=info msg="gpuhook: GPUs asked for by NVIDIA_VISIBLE_DEVICES: 0,1"\n')
    assert log.read_text().count("\n") == 1


def test_warnings_about_the_request_are_in_the_log(stand: Stand) -> None:
    """A request that does not count here is told, as the hook would tell it."""
    log = stand.folder / "shim.log"
    config = stand.config("accept-nvidia-visible-devices-envvar-when-unprivileged = false", debug=str(log))
    bundle = stand.bundle(ALL)
    assert stand.create(bundle, config=config).status == 0
    assert hooks_of(bundle) == []
    assert 'level=warning msg="gpuhook: strict-mode-mismatch: ignoring NVIDIA_VISIBLE_DEVICES' in log.read_text()


def test_the_version_is_ours_and_theirs(stand: Stand) -> None:
    """Our line first, then the low-level runtime's own answer."""
    stand.write("answer", "runc version 9\n")
    result = stand.run("--version")
    assert (result.status, result.stdout) == (0, f"gpuhook-runtime version {__version__}\n\nrunc version 9\n")


def test_crun_is_read_as_crun(stand: Stand) -> None:
    """The grammar of the command line is the low-level runtime's."""
    crun = stand.runtime("crun")
    bundle = stand.bundle(ALL)
    assert stand.run("create", f"-b{bundle}", "c1", config=stand.config(runtimes=[crun])).status == 0
    assert (len(hooks_of(bundle)), stand.argv) == (1, [crun, "create", f"-b{bundle}", "c1"])


def test_a_line_that_the_runtime_refuses_is_the_runtimes_to_refuse(stand: Stand) -> None:
    """Nothing is edited for it."""
    bundle = stand.bundle(ALL)
    stand.run("create", "-b", bundle, "c1", "--bundle", bundle)
    assert (hooks_of(bundle), stand.argv is not None) == ([], True)


def test_a_runtime_that_cannot_be_executed_is_an_error(stand: Stand) -> None:
    """It was there, and exec says no."""
    bad = write_program(stand.folder / "bad-runc", "#!/no/such/interpreter\n")
    result = stand.run("create", "c1", config=stand.config(runtimes=[bad]), cwd=str(stand.bundle()))
    assert result.status == 1
    assert result.stderr.startswith(f"gpuhook: low-level-runtime: {bad} cannot be started: No such file or directory")


def test_the_folder_may_be_gone(stand: Stand) -> None:
    """An engine's mistake is told, not traced."""
    place = stand.folder / "gone"
    place.mkdir()
    config = stand.config()
    script = f"cd {place} && rmdir {place} && NVIDIA_CTK_CONFIG_FILE_PATH={config} {stand.shim} create c1"
    result = run(["sh", "-c", script])
    assert result.status == 1
    assert "bad-bundle: the bundle '.' cannot be found" in result.stderr


@pytest.mark.parametrize(("words", "status"), [(("kill", "c1"), 0), (("create", "c1"), 1)])
def test_a_fault_of_ours_stops_no_container(stand: Stand, words: tuple[str, ...], status: int) -> None:
    """Whatever happens in here, what makes no container reaches a runtime; what does gets one line."""
    code = (
        "import sys; from gpuhook.runtime import entry; entry.load_settings = lambda *_: 1 / 0; "
        f"sys.exit(entry.main({list(words)!r}))"
    )
    env = {"PATH": str(stand.folder)}
    result = run([sys.executable, "-c", code], env=env, cwd=str(Path(__file__).parents[2]))
    assert (result.status, stand.argv) == (status, [stand.runc, *words] if status == 0 else None)
    assert result.stderr == "" if status == 0 else result.stderr.startswith("gpuhook: internal: ZeroDivisionError")


def test_it_starts_from_the_archive(stand: Stand) -> None:
    """No module is looked for one by one where the archive is there; without it all is the same, only slower."""
    text = Path(stand.shim).read_text()
    write_program(Path(stand.shim), text.replace('+ "start"', '+ "absent"'))
    bundle = stand.bundle(ALL)
    assert stand.create(bundle).status == 0
    assert len(hooks_of(bundle)) == 1


def test_a_container_that_is_not_made_is_kept_as_the_last_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `gpuhook explain --last-failure` finds it; what makes no container leaves no trace there."""
    monkeypatch.setattr(snapshot, "place", lambda: str(tmp_path / "run"))
    monkeypatch.setenv("GPUHOOK_RUNTIME_DEPTH", "x" * 8)
    assert entry.main(["state", "c1"]) == 1
    assert failures.last() is None
    assert entry.main(["--root", "/r", "create", "--bundle", "/b", "--pid-file", "/p", "c1"]) == 1
    found = failures.last()
    assert found is not None
    assert (found["stage"], found["container"], found["bundle"]) == ("gpuhook-runtime create", "c1", "/b")
    assert found["reference"] == "low-level-runtime"
