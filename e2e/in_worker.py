"""Python and JavaScript run inside the worker, on the installed wheel, for tests of what no call reaches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_RUN = """async (code) => {
  try {
    const value = await pyodide.runPythonAsync(code);
    return { value: value?.toJs ? value.toJs({ dict_converter: Object.fromEntries }) : value };
  } catch (error) {
    return { error: error.message };
  }
}"""


class InWorker:
    """The worker of a SyncBrowserLm (see conftest.py)."""

    def __init__(self, browser_lm: Any) -> None:
        self._lm = browser_lm
        self._worker = browser_lm.lm.page.workers[0]

    def python(self, code: str, timeout_s: float = 120) -> Any:
        """The value of the code's last expression. A traceback fails the test."""
        answer = self._lm.run(self._worker.evaluate(_RUN, code), timeout_s)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["value"]

    def javascript(self, function: str, argument: Any = None, timeout_s: float = 120) -> Any:
        """What a JavaScript function, perhaps an async one, returns."""
        return self._lm.run(self._worker.evaluate(function, argument), timeout_s)


@contextmanager
def usual_costs(browser_lm: Any) -> Iterator[None]:
    """What passes are thought to cost is fixed: whether tokens are guessed must not depend on other work."""
    worker = InWorker(browser_lm)
    worker.python(
        "from pagelm.verify import Verifier\n"
        "learns, Verifier.took = Verifier.took, lambda self, seconds, verified: None"
    )
    try:
        yield
    finally:
        worker.python("Verifier.took = learns")
