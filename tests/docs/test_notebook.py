"""The notebook of the examples runs to its last cell, and ends in the verdict that a reader sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "which_answers_are_invented.ipynb"


@pytest.mark.slow
def test_the_notebook_ends_in_the_wrong_claim(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    table, said = (_text(cell) for cell in notebook.cells[-2:])
    assert "pass" in table
    assert "fail" in table
    assert said.startswith("When did the shop open? ->")
    assert "Mozart" in said
    assert not [output for cell in notebook.cells for output in cell.get("outputs", ()) if _is_error(output)]


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def _text(cell: Any) -> str:
    return "".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)


def _is_error(output: Any) -> bool:
    return output.output_type == "error" or output.get("name") == "stderr"
