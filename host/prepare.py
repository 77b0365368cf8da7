"""What the set-up needs from the system: a Chromium, and a Vulkan driver for the native device.

`python -m pagelm.host.prepare` looks for both and installs Debian's packages where one is missing and the
user may install software (root, or sudo that asks for no password). Without a Chromium it fails and says
which variable to set; without a Vulkan driver it warns, since only the native device needs one.
"""

import importlib.util
import os
import shutil
import subprocess
import sys

from pagelm.host.assets import SetupError
from pagelm.host.chromium import find_chromium

CHROMIUM_PACKAGES = ("chromium",)
VULKAN_PACKAGES = ("libvulkan1", "mesa-vulkan-drivers")  # the second has a software driver, llvmpipe


def ensure_chromium() -> str:
    """The path of a Chromium, installed if need be. Raises: SetupError."""
    try:
        return find_chromium()
    except SetupError:
        if os.environ.get("PAGELM_CHROMIUM"):
            raise  # the user has named one; another would not be what was meant
        _install(CHROMIUM_PACKAGES, "Chromium")
        return find_chromium()


def ensure_vulkan() -> list[str]:
    """The names of the adapters that wgpu-py finds, after installing a driver if there were none.

    Raises: SetupError.
    """
    adapters = _adapters()
    if adapters:
        return adapters
    _install(VULKAN_PACKAGES, "a Vulkan driver")
    adapters = _adapters()
    if not adapters:
        raise SetupError("wgpu-py finds no adapter although a Vulkan driver was installed")
    return adapters


def _adapters() -> list[str]:
    """Asked in a process of its own: a Vulkan loader does not see drivers installed after it started."""
    if importlib.util.find_spec("wgpu") is None:
        raise SetupError("wgpu is not installed; run: pip install 'pagelm[native]'")
    code = "import wgpu; print(*(a.summary for a in wgpu.gpu.enumerate_adapters_sync()), sep='\\n')"
    return [line for line in (_said(code) or "").splitlines() if line.strip()]


def _said(code: str) -> str | None:
    """What Python code prints in a process of its own; None when it fails."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    return done.stdout.strip() if done.returncode == 0 else None


def _install(packages: tuple[str, ...], what: str) -> None:
    """Install Debian packages. Raises: SetupError when that is not possible or fails."""
    command = " ".join(("apt-get install", *packages))
    prefix = _may_install()
    if prefix is None:
        raise SetupError(f"{what} was not found and cannot be installed from here; run as root: {command}")
    print(f"installing {what}: {command}", file=sys.stderr, flush=True)
    env = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive"]
    for step in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", *packages]):
        done = subprocess.run([*env, *step], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise SetupError(f"{what} could not be installed with {command}: {last}")


def _may_install() -> list[str] | None:
    """The words before apt-get that let it install software, or None where nothing does."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is not None:
        asked = subprocess.run(["sudo", "-n", "true"], capture_output=True)
        if asked.returncode == 0:
            return ["sudo", "-n"]
    return None


def main() -> int:
    try:
        print(f"Chromium: {ensure_chromium()}")
    except SetupError as e:
        print(f"pagelm: {e}, or name a Chromium's executable file in PAGELM_CHROMIUM", file=sys.stderr)
        return 2
    try:
        print(f"WebGPU natively: {'; '.join(ensure_vulkan())}")
    except SetupError as e:
        print(f"pagelm: warning: --device native and its tests will not run: {e}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
