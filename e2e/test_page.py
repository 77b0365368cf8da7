"""The page as a person uses it: open, load, write, watch, stop, go on; and what it says about trouble."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect
from tiny_gguf import tiny_model

from pagelm.host.server import RunningServer, start_server

DATA = Path(__file__).parent / "data"
RESULTS = Path(__file__).parent.parent / "test-results"
SLOW_MS = 120_000  # a software adapter, perhaps two of them at once


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "tiny.gguf"
    path.write_bytes(tiny_model(n_ctx_train=2048))
    return path


@pytest.fixture(scope="module")
def tiny_server(wheel: Path, tiny: Path) -> Iterator[RunningServer]:
    with start_server(tiny, wheel) as running:
        yield running


@pytest.fixture
def opened(page: Page, tiny_server: RunningServer) -> Page:
    """The page with a small random model on offer, Python started."""
    return open_page(page, tiny_server.url)


@pytest.fixture
def real(page: Page, server: RunningServer) -> Page:
    """The page with the default model on offer; mark the test `model`."""
    return open_page(page, server.url)


def open_page(page: Page, url: str) -> Page:
    page.set_default_timeout(SLOW_MS)
    page.goto(url)
    expect(page.get_by_test_id("python-status")).to_have_text("Ready", timeout=SLOW_MS)
    return page


def prompt_box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Prompt")


def load(page: Page) -> None:
    page.get_by_test_id("load").click()
    expect(page.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)


def write(page: Page, prompt: str, max_tokens: int) -> None:
    prompt_box(page).fill(prompt)
    page.get_by_label("At most").fill(str(max_tokens))
    page.get_by_role("button", name="Generate").click()


def wait_for_end(page: Page) -> str:
    """The generated text once Generate can be pressed again."""
    expect(page.get_by_test_id("generate")).to_be_enabled(timeout=SLOW_MS)
    return page.get_by_test_id("generated").inner_text()


def wait_for_text(page: Page, characters: int = 1) -> str:
    page.wait_for_function(
        "(n) => document.getElementById('generated').textContent.length >= n", arg=characters, timeout=SLOW_MS
    )
    return page.get_by_test_id("generated").inner_text()


def test_opened_page_offers_the_served_model_and_asks_nobody_else(
    page: Page, tiny_server: RunningServer
) -> None:
    asked: list[str] = []
    troubles: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    open_page(page, tiny_server.url)
    expect(page.get_by_label("Address of a GGUF file")).to_have_value("model/tiny.gguf")
    expect(page.get_by_test_id("generate")).to_be_disabled()
    load(page)
    ours = urlsplit(tiny_server.url).netloc
    assert asked and {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "blob:"))} == {
        ours
    }
    assert troubles == []
    assert page.evaluate("crossOriginIsolated")


@pytest.mark.model
@pytest.mark.vendor_sensitive
def test_person_loads_the_default_model_and_reads_the_reference_text(real: Page) -> None:
    case = json.loads((DATA / "smollm2.json").read_text())["cases"][0]
    reference = json.loads((DATA / "smollm2-f32.json").read_text())["cases"][0]["f32Greedy"][:12]
    shown: list[str] = []
    real.expose_function("keep", lambda text: shown.append(text))
    real.evaluate(
        "new MutationObserver(() => keep(document.getElementById('load-text').textContent))"
        ".observe(document.getElementById('load-text'), {childList: true})"
    )
    load(real)
    assert any("MB" in text and " of 96.6 MB" in text for text in shown), shown
    expect(real.get_by_test_id("model-facts")).to_contain_text("llama · 98.4 MB · context 2,048 tokens")
    grown: list[str] = []
    real.expose_function("grow", lambda text: grown.append(text))
    real.evaluate(
        "new MutationObserver(() => grow(document.getElementById('generated').textContent))"
        ".observe(document.getElementById('generated'), "
        "{childList: true, characterData: true, subtree: true})"
    )
    write(real, case["prompt"], 12)
    text = wait_for_end(real)
    assert text == real.evaluate("(ids) => pagelm.call('decode', {ids})", reference)
    lengths = [len(part) for part in grown if part]
    assert len(set(lengths)) > 3 and lengths == sorted(lengths)  # it was there as it came, not at the end
    assert all(text.startswith(part) for part in grown)
    expect(real.get_by_test_id("shown-prompt")).to_have_text(case["prompt"])
    expect(real.get_by_test_id("generate-status")).to_contain_text("12 tokens")
    real.get_by_text("Device, memory and speed").click()
    facts = real.get_by_test_id("facts")
    for fact in ("Adapter", "weights 111.6 MB", "5 tokens in", "12 tokens at", "ms per token"):
        expect(facts).to_contain_text(fact)
    RESULTS.mkdir(exist_ok=True)
    real.screenshot(path=RESULTS / "page.png", full_page=True)


@pytest.mark.model
def test_stop_while_the_prompt_is_read_leaves_a_page_that_works(real: Page) -> None:
    load(real)
    write(real, "All work and no play makes a dull day. " * 60, 8)
    expect(real.get_by_test_id("generate-status")).to_have_text("Reading the prompt…")
    real.get_by_test_id("stop").click()
    began = time.monotonic()
    assert wait_for_end(real) == ""
    assert time.monotonic() - began < 20  # reading on to the end would take minutes here
    expect(real.get_by_test_id("generate-status")).to_contain_text("topped")
    write(real, "The capital of France is", 3)
    assert wait_for_end(real).startswith(" Paris")


@pytest.mark.model
def test_stop_while_loading_leaves_a_page_that_loads_again(real: Page) -> None:
    real.get_by_test_id("load").click()
    real.get_by_test_id("stop-load").click()
    expect(real.get_by_test_id("python-status")).to_have_text("Stopped", timeout=SLOW_MS)
    expect(real.get_by_test_id("load-error")).to_be_hidden()
    expect(real.get_by_test_id("loaded")).to_be_hidden()
    load(real)
    write(real, "The capital of France is", 2)
    assert wait_for_end(real).startswith(" Paris")


def test_stop_while_writing_keeps_the_text_and_writing_again_starts_the_same(opened: Page) -> None:
    load(opened)
    write(opened, "hello world", 2000)
    wait_for_text(opened, 10)
    opened.get_by_test_id("stop").click()
    first = wait_for_end(opened)
    expect(opened.get_by_test_id("generate-status")).to_contain_text("stopped")
    write(opened, "hello world", 40)
    second = wait_for_end(opened)
    assert first and second
    shorter = min(len(first), len(second)) - 1  # the last character may have been cut short
    assert first[:shorter] == second[:shorter]


def test_file_chosen_on_this_device_is_loaded(opened: Page, tiny: Path) -> None:
    with opened.expect_file_chooser() as chooser:
        opened.get_by_role("button", name="choose a file on this device").click()
    chooser.value.set_files(tiny)
    expect(opened.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)
    expect(opened.get_by_test_id("model-facts")).to_contain_text("tiny.gguf")
    write(opened, "hello", 4)
    from_file = wait_for_end(opened)
    opened.get_by_test_id("change").click()
    opened.get_by_test_id("load").click()
    expect(opened.get_by_test_id("load-form")).to_be_hidden(timeout=SLOW_MS)
    expect(opened.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)
    write(opened, "hello", 4)
    assert wait_for_end(opened) == from_file


def test_dropped_file_is_loaded(opened: Page, tiny: Path) -> None:
    opened.evaluate(
        """async (address) => {
          const file = new File([await (await fetch(address)).blob()], "dropped.gguf");
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(file);
          dispatchEvent(new DragEvent("drop", {dataTransfer, cancelable: true}));
        }""",
        "model/tiny.gguf",
    )
    expect(opened.get_by_test_id("model-facts")).to_contain_text("dropped.gguf", timeout=SLOW_MS)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"<!doctype html><title>Sign in</title>" * 20, r"^GgufError: wrong\.gguf: "),
        (b"GGUF" + bytes(100), r"^GgufError: wrong\.gguf: .*version 0.*header\.version at byte 4"),
        (b"", r"^GgufError: wrong\.gguf: "),
    ],
)
def test_wrong_file_is_told_in_one_line_and_the_next_one_loads(
    opened: Page, tiny: Path, tmp_path: Path, content: bytes, told: str
) -> None:
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(content)
    opened.get_by_test_id("file").set_input_files(wrong)
    error = opened.get_by_test_id("load-error")
    expect(error).to_have_text(re.compile(told), timeout=SLOW_MS)
    assert "\n" not in error.inner_text()
    expect(opened.get_by_test_id("loaded")).to_be_hidden()
    opened.get_by_test_id("file").set_input_files(tiny)
    expect(opened.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)
    expect(error).to_be_hidden()


@pytest.mark.parametrize("address", ["model/absent.gguf", "http://127.0.0.1:9/model.gguf", "http://"])
def test_address_without_a_model_is_told(opened: Page, address: str) -> None:
    opened.get_by_label("Address of a GGUF file").fill(address)
    opened.get_by_test_id("load").click()
    error = opened.get_by_test_id("load-error")
    expect(error).to_contain_text("SourceError: ", timeout=SLOW_MS)
    expect(error).to_contain_text(address)
    expect(opened.get_by_test_id("load")).to_be_enabled()


def test_prompt_longer_than_the_context_is_told_and_a_short_one_works(opened: Page) -> None:
    load(opened)
    write(opened, "hello world " * 2000, 4)
    expect(opened.get_by_test_id("generate-error")).to_contain_text("ContextFull: ", timeout=SLOW_MS)
    write(opened, "hello", 4)
    wait_for_end(opened)
    expect(opened.get_by_test_id("generate-error")).to_be_hidden()
    expect(opened.get_by_test_id("generate-status")).to_contain_text("4 tokens")


def test_empty_prompt_and_impossible_length_are_not_sent(opened: Page) -> None:
    load(opened)
    write(opened, "", 4)
    expect(opened.get_by_test_id("generated")).to_be_hidden()
    write(opened, "hello", 0)
    expect(opened.get_by_test_id("generated")).to_be_hidden()
    write(opened, "hello", 1)
    wait_for_end(opened)
    expect(opened.get_by_test_id("generate-status")).to_contain_text("1 token")


def test_keyboard_alone_is_enough(opened: Page) -> None:
    opened.get_by_label("At most").fill("2000")  # it must not end before the keys that stop it arrive
    opened.get_by_label("Address of a GGUF file").focus()
    opened.keyboard.press("Enter")
    expect(prompt_box(opened)).to_be_focused(timeout=SLOW_MS)
    opened.keyboard.type("hello world")
    opened.keyboard.press("Control+Enter")
    wait_for_text(opened, 3)
    opened.keyboard.press("Escape")
    wait_for_end(opened)
    opened.keyboard.press("Tab")
    expect(opened.get_by_label("At most")).to_be_focused()
    opened.keyboard.press("Tab")
    expect(opened.get_by_test_id("generate")).to_be_focused()
    opened.keyboard.press("Enter")
    expect(opened.get_by_test_id("stop")).to_be_focused()
    opened.keyboard.press("Enter")
    expect(opened.get_by_test_id("generate")).to_be_focused(timeout=SLOW_MS)


def test_reload_in_the_middle_gives_a_fresh_page_that_works(opened: Page) -> None:
    load(opened)
    write(opened, "hello world", 2000)
    wait_for_text(opened, 3)
    opened.reload()
    expect(opened.get_by_test_id("python-status")).to_have_text("Ready", timeout=SLOW_MS)
    expect(opened.get_by_test_id("loaded")).to_be_hidden()
    load(opened)
    write(opened, "hello", 4)
    wait_for_end(opened)
    expect(opened.get_by_test_id("generate-status")).to_contain_text("4 tokens")


def test_load_pressed_before_python_is_there_waits_for_it(page: Page, tiny_server: RunningServer) -> None:
    page.goto(tiny_server.url)
    expect(page.get_by_label("Address of a GGUF file")).to_have_value("model/tiny.gguf", timeout=SLOW_MS)
    page.get_by_test_id("load").click()
    expect(page.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)


@pytest.mark.parametrize(
    ("script", "title", "remedy"),
    [
        ("delete Navigator.prototype.gpu", "This browser does not offer WebGPU", "chrome://flags"),
        ("GPU.prototype.requestAdapter = async () => null", "No graphics device was found", "chrome://gpu"),
        (
            "Object.defineProperty(window, 'isSecureContext', {value: false})",
            "WebGPU needs a secure address",
            "http://localhost",
        ),
    ],
)
def test_browser_without_webgpu_is_told_what_to_do(
    page: Page, tiny_server: RunningServer, script: str, title: str, remedy: str
) -> None:
    page.add_init_script(script)
    page.goto(tiny_server.url)
    notice = page.get_by_test_id("no-webgpu")
    expect(notice.get_by_role("heading")).to_have_text(title, timeout=SLOW_MS)
    expect(notice).to_contain_text(remedy)
    expect(page.get_by_test_id("load")).to_be_hidden()


def test_python_that_does_not_start_is_told(page: Page, tiny_server: RunningServer) -> None:
    page.context.route("**/wheel.json", lambda route: route.fulfill(status=500))
    page.goto(tiny_server.url)
    expect(page.get_by_test_id("python-status")).to_have_text("Python did not start", timeout=SLOW_MS)
    expect(page.get_by_test_id("load-error")).to_contain_text("the server answered 500")
    expect(page.get_by_test_id("load")).to_be_disabled()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_sticks_out_at_any_width(opened: Page, width: int) -> None:
    def overhang() -> Any:
        return opened.evaluate("document.documentElement.scrollWidth - innerWidth")

    opened.set_viewport_size({"width": width, "height": 700})
    assert overhang() <= 0
    load(opened)
    write(opened, "x" * 150, 30)
    wait_for_end(opened)
    opened.get_by_text("Device, memory and speed").click()
    assert overhang() <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_colour_schemes(opened: Page, scheme: Any) -> None:
    """WCAG 2.2 contrast of at least 4.5 for text, against the background it lies on."""
    opened.emulate_media(color_scheme=scheme)
    load(opened)
    write(opened, "hello", 4)
    wait_for_end(opened)
    opened.get_by_text("Device, memory and speed").click()
    opened.get_by_test_id("change").click()
    poor = opened.evaluate(
        """() => {
          const light = (css) => {
            const rgb = css.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
            const [r, g, b] = rgb.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const under = (element) => {
            for (let e = element; e; e = e.parentElement) {
              const color = getComputedStyle(e).backgroundColor;
              if (color !== "rgba(0, 0, 0, 0)") return color;
            }
          };
          const found = [];
          for (const element of document.querySelectorAll("body *")) {
            const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
            if (!own || !element.checkVisibility() || element.closest(":disabled")) continue;
            const [a, b] = [light(getComputedStyle(element).color), light(under(element))];
            const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (contrast < 4.5) found.push(`${element.tagName} ${element.textContent.trim()}: ${contrast}`);
          }
          return found;
        }"""
    )
    assert poor == []
