"""Set-up of the system: installs what is missing where it may, and says what to do where it may not."""

import subprocess

import pytest

from pagelm.host import chromium, prepare
from pagelm.host.assets import SetupError


class System:
    """A machine with some programs; records what is run as root, and what that brings."""

    def __init__(self, *, apt=True, root=True, sudo=False, broken=False) -> None:
        self.programs = {"apt-get"} if apt else set()
        self.programs |= {"sudo"} if sudo else set()
        self.root, self.sudo, self.broken = root, sudo, broken
        self.ran = []
        self.adapters = []
        self.bundled = None

    def which(self, name):
        return f"/usr/bin/{name}" if name in self.programs else None

    def run(self, command, **options):
        if command[:3] == ["sudo", "-n", "true"]:
            return subprocess.CompletedProcess(command, 0 if self.sudo else 1, "", "")
        self.ran.append(command)
        if self.broken:
            return subprocess.CompletedProcess(command, 100, "", "E: Unable to locate package\n")
        if "chromium" in command:
            self.programs.add("chromium")
        if "mesa-vulkan-drivers" in command:
            self.adapters.append("llvmpipe")
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def machine(monkeypatch):
    def put(**options):
        system = System(**options)
        monkeypatch.setattr(prepare.shutil, "which", system.which)
        monkeypatch.setattr(prepare.subprocess, "run", system.run)
        monkeypatch.setattr(prepare.os, "geteuid", lambda: 0 if system.root else 1000)
        monkeypatch.setattr(prepare, "_adapters", lambda: list(system.adapters))
        monkeypatch.setattr(chromium, "bundled_chromium", lambda: system.bundled)
        monkeypatch.delenv("PAGELM_CHROMIUM", raising=False)
        return system

    return put


def test_chromium_that_is_there_is_used_and_nothing_installed(machine):
    system = machine()
    system.programs.add("chromium")
    assert prepare.ensure_chromium() == "/usr/bin/chromium"
    assert system.ran == []


def test_browser_that_playwright_brought_is_used(machine, tmp_path):
    system = machine()
    system.bundled = str(tmp_path / "chrome")
    (tmp_path / "chrome").write_text("")
    assert prepare.ensure_chromium() == system.bundled
    assert system.ran == []


def test_root_gets_chromium_installed(machine):
    system = machine()
    assert prepare.ensure_chromium() == "/usr/bin/chromium"
    assert [command[2:4] for command in system.ran] == [["apt-get", "update"], ["apt-get", "install"]]
    assert "sudo" not in system.ran[0]


def test_sudo_without_password_is_used_by_others(machine):
    system = machine(root=False, sudo=True)
    prepare.ensure_chromium()
    assert all(command[:2] == ["sudo", "-n"] for command in system.ran)


@pytest.mark.parametrize("options", [{"root": False}, {"apt": False}], ids=["user", "no apt"])
def test_who_may_not_install_is_told_what_to_set(machine, capsys, options):
    system = machine(**options)
    assert prepare.main() == 2
    assert system.ran == []
    err = capsys.readouterr().err
    assert "run as root: apt-get install chromium" in err
    assert "PAGELM_CHROMIUM" in err


def test_chromium_named_wrongly_is_not_replaced_by_another(machine, monkeypatch):
    system = machine()
    monkeypatch.setenv("PAGELM_CHROMIUM", "/nowhere/chrome")
    with pytest.raises(SetupError, match="PAGELM_CHROMIUM=/nowhere/chrome"):
        prepare.ensure_chromium()
    assert system.ran == []


def test_failed_installation_says_why(machine):
    machine(broken=True)
    with pytest.raises(SetupError, match="could not be installed.*Unable to locate package"):
        prepare.ensure_chromium()


def test_vulkan_driver_is_installed_when_no_adapter_is_found(machine):
    system = machine()
    assert prepare.ensure_vulkan() == ["llvmpipe"]
    assert "mesa-vulkan-drivers" in system.ran[-1]
    count = len(system.ran)
    assert prepare.ensure_vulkan() == ["llvmpipe"]
    assert len(system.ran) == count


def test_missing_vulkan_driver_is_a_warning_only(machine, capsys):
    system = machine(root=False)
    system.programs.add("chromium")
    assert prepare.main() == 0
    out, err = capsys.readouterr()
    assert "Chromium: /usr/bin/chromium" in out
    assert "warning: --device native" in err


@pytest.mark.gpu
def test_adapters_are_those_that_wgpu_lists():
    import wgpu

    assert prepare._adapters() == [a.summary for a in wgpu.gpu.enumerate_adapters_sync()]
