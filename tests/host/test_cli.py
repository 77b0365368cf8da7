"""The command line: what each command prints."""

import codecs
import functools
import http.server
import json
import os
import signal
import threading
import urllib.request

import pytest
from command import finished, invoke, pagelm_process

import pagelm
from pagelm import kernels
from pagelm.host import check as checks
from pagelm.host import terminal
from pagelm.host.cpu_lm import CpuLm
from pagelm.host.terminal import visible

RUN_KEYS = {"prompt_ids", "ids", "text", "stop_reason", "timing", "stats", "adapter", "device"}


def test_run_streams_text_to_stdout_and_timing_to_stderr(fake):
    result = invoke("run", fake.model, "--prompt", "hi")
    assert result.exit_code == 0
    assert result.stdout == "one two drei\n"
    assert "10.0 tok/s" in result.stderr and "stopped by length" in result.stderr
    assert fake.closed


def test_run_defaults_to_the_browser_and_hands_the_options_on(fake):
    invoke("run", fake.model, "--prompt", "hi", "--ctx", "99", "--memory-budget", "2M")
    device, model, options = fake.opened_with[0]
    assert (device, model) == ("browser", fake.model)
    assert options["n_ctx"] == 99 and options["memory_budget"] == 2 << 20
    assert options["cache_type"] == "f32"


@pytest.mark.parametrize("command", [("run", "--prompt", "hi"), ("bench", "--gen", "2", "--rounds", "1")])
def test_the_cache_type_is_handed_on(fake, command):
    result = invoke(*command, fake.model, "--cache-type", "f16")
    assert result.exit_code == 0 and fake.opened_with[0][2]["cache_type"] == "f16"
    assert ("native (fake, none), f16 cache\n" in result.stdout) == (command[0] == "bench")


def test_inspect_plans_the_cache_asked_for(tiny):
    wide, half = (
        json.loads(invoke("inspect", tiny, "--json", "--cache-type", kind).stdout)["plan"]["kv_cache"]
        for kind in ("f32", "f16")
    )
    assert half == wide // 2 > 0


def test_the_cpu_has_no_cache_type_to_choose(tiny):
    result = invoke("run", tiny, "--prompt", "hi", "--device", "cpu", "--cache-type", "f16")
    assert result.exit_code == 2
    assert "cache_type is 'f16', but the device cpu, the oracle, has f32" in result.stderr


def test_run_quiet_prints_the_text_alone(fake):
    result = invoke("run", fake.model, "--prompt", "hi", "--quiet")
    assert (result.stdout, result.stderr) == ("one two drei\n", "")


def test_run_json_prints_one_object_and_nothing_else(fake):
    result = invoke("run", fake.model, "--prompt", "hi", "--json", "--max-tokens", "5", "--ignore-eos")
    got = json.loads(result.stdout)
    assert got.keys() >= RUN_KEYS
    assert got["prompt_ids"] == [104, 105] and len(got["ids"]) == 5
    assert got["timing"].keys() >= {
        "load_s",
        "prefill_s",
        "decode_s",
        "prefill_tok_s",
        "decode_tok_s",
        "record_ms_per_token",
        "submit_ms_per_token",
    }
    assert got["stats"].keys() >= {
        "submits",
        "dispatches",
        "tokens",
        "buffers_created_in_decode",
        "bytes_read_back_per_token",
        "memory_bytes",
    }
    assert got["adapter"].keys() >= {"vendor", "architecture", "device", "backend"}
    assert result.stderr == ""


def test_run_takes_the_prompt_from_stdin(fake):
    result = invoke("run", fake.model, "--prompt", "-", "--json", input="grüße\n")
    assert json.loads(result.stdout)["prompt_ids"] == [ord(c) for c in "grüße\n"]


def test_run_refuses_a_prompt_that_is_not_utf8(fake):
    result = invoke("run", fake.model, "--prompt", "-", input=b"ab\xff")
    assert result.exit_code == 2
    assert (
        result.stderr == "pagelm: standard input: not UTF-8 text: byte 0xff at offset 2; save it as UTF-8\n"
    )
    result = invoke("run", fake.model, "--prompt", "a\udcff")
    assert result.stderr == "pagelm: the prompt is not UTF-8 text: character 1 is a broken byte\n"


def test_run_closes_the_device_after_an_error(fake, monkeypatch):
    async def fail(*args):
        raise pagelm.PagelmError("the device\nis gone")

    monkeypatch.setattr(fake, "generate", fail)
    result = invoke("run", fake.model, "--prompt", "hi")
    assert (result.exit_code, result.stderr) == (2, "pagelm: the device is gone\n")
    assert fake.closed


def test_run_on_the_cpu_gives_the_oracles_ids(tiny):
    code, out, err = finished(
        "run", tiny, "--device", "cpu", "--prompt", "hello", "--max-tokens", "6", "--json"
    )
    assert (code, err) == (0, "")
    got = json.loads(out)
    oracle = checks.Oracle(tiny)
    want, feed = [], got["prompt_ids"]
    for _ in range(len(got["ids"])):
        want.append(int(oracle.forward(feed).argmax()))
        feed = want[-1:]
    assert got["ids"] == want and got["ids"]
    assert got["device"] == "cpu" and got["adapter"]["backend"] == "cpu"


@pytest.mark.gpu
def test_run_natively_gives_the_ids_and_text_of_the_cpu(tiny):
    args = ["run", tiny, "--prompt", "hello world", "--max-tokens", "12", "--ignore-eos", "--json"]
    native = json.loads(finished(*args, "--device", "native")[1])
    cpu = json.loads(finished(*args, "--device", "cpu")[1])
    for key in ("prompt_ids", "ids", "text", "stop_reason"):
        assert native[key] == cpu[key], key
    assert native["stats"]["buffers_created_in_decode"] == 0
    assert native["stats"]["bytes_read_back_per_token"] == 4


def keys(value):
    """The keys of an object and of the objects in it."""
    return {key: keys(item) for key, item in value.items()} if isinstance(value, dict) else None


@pytest.mark.gpu
@pytest.mark.parametrize(
    "command",
    [
        ["run", "--prompt", "hello", "--max-tokens", "3"],
        ["bench", "--gen", "2", "--rounds", "1", "--max-noise", "99"],
    ],
)
def test_json_has_the_same_keys_natively_and_on_the_cpu(tiny, command):
    name, *options = command
    native, cpu = (
        json.loads(finished(name, tiny, *options, "--json", "--device", device)[1])
        for device in ("native", "cpu")
    )
    assert keys(native) == keys(cpu)
    assert cpu["timing"]["wait_ms_per_token"] == 0
    assert native["stats"]["prompt_tokens"] == cpu["stats"]["prompt_tokens"] > 0
    assert native.get("n_past") == cpu.get("n_past")


def test_context_that_ends_first_is_the_stop_reason(tiny):
    args = ["run", tiny, "--device", "cpu", "--prompt", "hi, world", "--ignore-eos", "--json"]
    n_prompt = len(json.loads(finished(*args, "--max-tokens", "1")[1])["prompt_ids"])
    got = json.loads(finished(*args, "--ctx", str(n_prompt + 3))[1])
    assert got["stop_reason"] == "context"
    assert len(got["ids"]) == 4  # the last one is shown, not fed
    code, _, err = finished(*args, "--ctx", str(n_prompt - 1))
    assert code == 2 and f"do not fit the context of {n_prompt - 1}" in err


def test_bench_json_has_the_promised_keys(fake):
    args = ["bench", fake.model, "--prompt-tokens", "8", "--gen", "4", "--rounds", "2", "--max-noise", "99"]
    result = invoke(*args, "--json")
    got = json.loads(result.stdout)
    assert got["prefill_tok_s"].keys() == got["decode_tok_s"].keys() == {"p50", "min", "max"}
    keys = {"dispatches_per_token", "submits_per_token", "ttft_s", "guest_peak_heap_bytes"}
    assert got.keys() >= keys
    assert "warm-up" in result.stderr
    assert not got.keys() & {"peers", "ratios", "context"}


def test_bench_times_contexts_in_one_that_is_large_enough(fake, tmp_path):
    args = ["bench", fake.model, "--rounds", "1", "--gen", "4", "--max-noise", "99"]
    got = json.loads(invoke(*args, "--context", "16,4096", "--json").stdout)
    assert [one["tokens"] for one in got["context"]] == [16, 4096] and got["context"][0]["ratio"] == 1
    invoke(*args, "--context", "16")
    assert [options["n_ctx"] for _, _, options in fake.opened_with] == [4100, None]


def test_bench_writes_its_tables_where_asked(fake, tmp_path):
    args = ["bench", fake.model, "--rounds", "1", "--gen", "4", "--max-noise", "99"]
    result = invoke(*args, "--markdown", str(tmp_path / "report.md"))
    assert "fake" in result.stdout
    assert (tmp_path / "report.md").read_text().splitlines()[-1].startswith("| pagelm ")


def test_inspect_json_has_metadata_tensors_and_plan(tiny):
    got = json.loads(invoke("inspect", tiny, "--json").stdout)
    assert got.keys() >= {"metadata", "tensors", "plan"}
    assert "blk.1.ffn_down.weight" in invoke("inspect", tiny).stdout


def test_tokenize_parses_special_tokens_unless_told_not_to(tiny):
    got = json.loads(invoke("tokenize", tiny, "--text", "<|im_end|>the", "--json").stdout)
    assert got["ids"][0] == 2 and got["pieces"][0] == "<|im_end|>"
    plain = json.loads(invoke("tokenize", tiny, "--text", "<|im_end|>the", "--json", "--no-special").stdout)
    assert 2 not in plain["ids"] and "".join(plain["pieces"]) == "<|im_end|>the"


def test_tokenize_adds_bos_only_when_asked(tiny):
    without = json.loads(invoke("tokenize", tiny, "--text", "the", "--json").stdout)
    with_bos = json.loads(invoke("tokenize", tiny, "--text", "the", "--json", "--bos").stdout)
    assert with_bos["ids"] == [1, *without["ids"]]
    assert with_bos["pieces"] == ["<|im_start|>", *without["pieces"]]


def test_tokenize_reads_a_file_as_it_is(tiny, tmp_path):
    file = tmp_path / "text"
    file.write_bytes("a\r\n é".encode())
    got = json.loads(invoke("tokenize", tiny, "--file", str(file), "--json").stdout)
    assert "".join(got["pieces"][:4]) == "a\r\n "
    assert got["pieces"][-2:] == ["\\xc3", "\\xa9"]  # one token a byte: neither is text
    for mark, at in ((b"", 2), (codecs.BOM_UTF8, 5)):
        file.write_bytes(mark + b"ab\xc3(")
        result = invoke("tokenize", tiny, "--file", str(file))
        told = f"pagelm: {file}: not UTF-8 text: byte 0xc3 at offset {at}; save it as UTF-8\n"
        assert (result.exit_code, result.stderr) == (2, told)


def test_tokenize_reads_standard_input(tiny):
    for given in ("the one é\n".encode(), codecs.BOM_UTF8 + "the one é\n".encode()):
        got = json.loads(invoke("tokenize", tiny, "--file", "-", "--json", input=given).stdout)
        want = json.loads(invoke("tokenize", tiny, "--text", "the one é\n", "--json").stdout)
        assert got == want


@pytest.mark.parametrize("name", ["no-such-file", ".", "/dev/zero"])
def test_text_that_cannot_be_read_is_one_line(tiny, name, monkeypatch):
    monkeypatch.setattr(terminal, "MAX_TEXT", 1000)
    result = invoke("tokenize", tiny, "--file", name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"pagelm: {name}: ") and result.stderr.count("\n") == 1


def test_byte_order_mark_is_no_part_of_a_text(fake, tmp_path):
    marked = tmp_path / "marked"
    marked.write_bytes(codecs.BOM_UTF8 + b"one\ntwo\n")
    assert checks.read_prompts(marked) == ["one", "two"]
    marked.write_bytes(codecs.BOM_UTF8 + b'["one", "two"]')
    assert checks.read_prompts(marked) == ["one", "two"]
    result = invoke("run", fake.model, "--prompt", "-", "--json", input=codecs.BOM_UTF8 + b"hi")
    assert json.loads(result.stdout)["prompt_ids"] == [104, 105]


def test_tokenize_refuses_text_that_is_not_utf8(tiny):
    result = invoke("tokenize", tiny, "--text", "a\udcff")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "the text is not UTF-8 text: character 1" in result.stderr


def test_tokenize_of_the_empty_text_has_no_ids(tiny):
    assert json.loads(invoke("tokenize", tiny, "--text", "", "--json").stdout) == {"ids": [], "pieces": []}


def test_shaders_are_those_of_the_package(tiny):
    got = json.loads(invoke("shaders", "--workgroup", "16", "--json").stdout)
    assert got == kernels.shaders(16)
    text = invoke("shaders").stdout
    assert all(f"// ==== {name} ====" in text for name in got)


def test_version_and_help():
    assert invoke("--version").stdout == f"pagelm {pagelm.__version__}\n"
    assert "tokenize" in invoke("--help").stdout


def test_help_is_what_it_prints_when_nothing_is_asked():
    bare, asked = invoke(), invoke("--help")
    assert (bare.exit_code, bare.stdout, bare.stderr) == (0, asked.stdout, "")
    assert "\nCommands:\n" in bare.stdout


def test_visible_text_is_one_line():
    assert visible("a\n\x1b[1mé'") == "'a\\n\\x1b[1mé''"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def tiny_url(tiny):
    """The tiny model on a server that knows no Range, as the simplest ones do not."""
    folder, name = os.path.split(tiny)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{name}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_url_gives_what_the_file_gives(tiny, tiny_url):
    args = ["--device", "cpu", "--prompt", "hello", "--max-tokens", "4", "--json"]
    by_url, by_path = (json.loads(invoke("run", model, *args).stdout) for model in (tiny_url, tiny))
    assert by_url["ids"] == by_path["ids"] and by_url["ids"]
    inspected = [json.loads(invoke("inspect", model, "--json").stdout) for model in (tiny_url, tiny)]
    assert inspected[0]["tensors"] == inspected[1]["tensors"]


def test_copy_of_a_url_goes_with_the_device(tiny_url, monkeypatch, tmp_path):
    import asyncio
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def open_and_close():
        lm = await CpuLm.open(tiny_url)
        there = [path.name for path in tmp_path.rglob("*.gguf")]
        await lm.close()
        return there

    assert asyncio.run(open_and_close()) == ["model.gguf"]
    assert list(tmp_path.iterdir()) == []


def test_url_that_leads_nowhere_is_one_line(tiny_url):
    result = invoke("run", tiny_url + ".not", "--device", "cpu", "--prompt", "x")
    assert result.exit_code == 2
    assert "404" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.usefixtures("with_pyodide")
def test_serve_says_where_it_is_and_ends_with_ctrl_c(tiny):
    process = pagelm_process("serve", tiny, "--port", "0")
    try:
        line = process.stdout.readline().decode()
        url = line.split()[3]
        assert line.startswith("pagelm is at http://127.0.0.1:")
        with urllib.request.urlopen(url + "model/tiny.gguf", timeout=10) as answer:
            assert len(answer.read()) == os.path.getsize(tiny)
    finally:
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"pagelm: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--max-noise", "nan"], "'nan' is not a number; allowed: x>=0"),
        (["--markdown", ""], "it is empty; allowed: the name of a file"),
        (["--markdown", "/"], "/ is a directory"),
        (["--trace", "nowhere/t.json"], "nowhere is no directory; make it first"),
        (
            ["--guess", "--peers", "wllama"],
            "--guess measures something else instead: it does not go with",
        ),
        (["--profile", "--guess"], "--profile measures something else instead: it does not go with --guess"),
        (["--context", "0"], "'0' is no number of tokens; allowed: integers from 1, as in 128,1024"),
        (["--prompts", "x"], "--prompts goes with --guess"),
    ],
)
def test_bench_refuses_before_it_measures(arguments, told):
    done = invoke("bench", "there-is-no-such.gguf", *arguments)
    assert done.exit_code == 2 and told in done.stderr and done.stderr.count("\n") == 1
