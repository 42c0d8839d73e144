"""The typed program and the notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FIXTURES

FOLDER = Path(__file__).resolve().parent


def test_typed_program_runs() -> None:
    paths = [str(FIXTURES / "etl" / f"{name}.etl") for name in ("kernel", "tracelogging")]
    command = [sys.executable, "-W", "error", str(FOLDER / "typed_program.py"), *paths]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "fixture-kernel" in output and "Windows Kernel Process/Start" in output


def test_notebook_runs_and_shows_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    folder = FOLDER.parent / "notebooks"
    notebook = nbformat.read(folder / "first-look.ipynb", as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 5
    texts = []
    for cell in code:
        for output in cell.outputs:
            assert output.output_type != "error"
            texts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    shown = "\n".join(texts)
    assert "fixture-kernel" in shown and "shell.exe" in shown


def test_examples_of_the_documentation_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER.parents[2] / "docs" / "python.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert len(blocks) == 5
    etl = FIXTURES / "etl"
    replacements = {
        '"trace.etl"': repr(str(etl / "tracelogging.etl")),
        '"kernel.etl"': repr(str(etl / "kernel.etl")),
        '"clretwrc.dll"': repr(str(FIXTURES / "manifests" / "everything.man")),
        "Contoso.": "Traceweir.Fixture.",
    }
    names: dict[str, object] = {}
    for block in blocks:
        if "traceweir.watch" in block:
            compile(block, "docs/python.md", "exec")
            continue
        for old, new in replacements.items():
            block = block.replace(old, new)
        exec(compile(block, "docs/python.md", "exec"), names)
    output = capsys.readouterr().out
    assert "fixture-tracelogging" in output and "Traceweir.Fixture.Types Integers" in output
