"""What a reader of the README does in a page of their own: micropip, load, generate."""

import base64
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagelm.host.assets import cache_dir

pytestmark = pytest.mark.model
ROOT = Path(__file__).parent.parent

# A page of somebody else's: Pyodide on the main thread, micropip as any distribution of it has it.
RUN = """async ({wheels, code}) => {
  const { loadPyodide } = await import("/pyodide/pyodide.mjs");
  const py = await loadPyodide({ indexURL: "/pyodide/" });
  py.setStdout({ batched: (line) => (globalThis.out = (globalThis.out ?? "") + line + "\\n") });
  for (const [name, data] of wheels) {
    py.FS.writeFile(`/lib/${name}`, Uint8Array.from(atob(data), (c) => c.charCodeAt(0)));
    py.runPython(`import sys; sys.path.append("/lib/${name}")`);
  }
  await py.runPythonAsync(code);
  return globalThis.out;
}"""


@pytest.fixture(scope="session")
def micropip() -> list[tuple[str, str]]:
    """Wheels of micropip and what it needs, for the page's Python; fetched once."""
    folder = cache_dir() / "micropip"
    if len(list(folder.glob("*.whl"))) < 2:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.14", "--dest", str(folder), "micropip", "packaging"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return [(p.name, base64.b64encode(p.read_bytes()).decode()) for p in sorted(folder.glob("*.whl"))]


def test_readme_example_runs_in_a_page(page, server, wheel, micropip):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, re.S)[0]
    code, n = re.subn(r"https://your\.site/pagelm[^\"]*", f"{server.url}wheel/{wheel.name}", code)
    code, m = re.subn(r"https://your\.site/SmolLM2[^\"]*", str(server.model_url), code)
    assert (n, m) == (1, 1)
    page.goto(f"{server.url}wheel.json")  # any document of the server's origin
    out = page.evaluate(RUN, {"wheels": micropip, "code": code})
    assert "weights" in out and " Paris." in out
    assert re.search(r"'decode_tok_s': [0-9.]+", out)
