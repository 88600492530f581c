"""The metrics that came later on the demo's data, by a judge of one's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ragtrace.cli import demo_run
from tests.integration.cli.program import json_lines, run

DEMO = Path(demo_run.__file__).parent / "data" / "ragtruth_qa_sample.jsonl"
HOUSE = """
from ragtrace.model import JudgeIdentity, Usage
from ragtrace.ports import JudgeReply
from ragtrace.testing import ScriptedJudge


class House:
    identity = JudgeIdentity(provider="house", model="v1")

    async def ask(self, request):
        if request.step == "retrieval":
            from ragtrace.errors import JudgeNonsense

            raise JudgeNonsense("it answers one step a request")
        text = ScriptedJudge().reply_to(request).model_dump_json()
        return JudgeReply(value=request.reply_type.model_validate_json(text), usage=Usage(calls=1))

    async def aclose(self):
        pass


def open_it(settings):
    return House()
"""
LATER = "factual_correctness,noise_sensitivity,citation_precision,citation_recall,retrieval_recall"


def test_they_score_the_demos_answers_by_a_house_judge(tmp_path: Path) -> None:
    (tmp_path / "house.py").write_text(HOUSE)
    records = tmp_path / "records.jsonl"
    records.write_text("".join(DEMO.read_text().splitlines(keepends=True)[:6]))
    asked = ("--metrics", LATER, "--criterion", "names=The answer names a number", "--json")
    result = run("evaluate", str(records), "--judge", f"{tmp_path / 'house.py'}:open_it", *asked)
    assert result.exit_code == 0, result.stderr
    lines = json_lines(result.stdout)
    by_metric = Counter((line["metric"], line["skip_reason"] or line["status"]) for line in lines)
    # the demo has neither references, nor reference ids, nor citations
    assert by_metric == {
        ("factual_correctness", "no_reference"): 6,
        ("noise_sensitivity", "no_reference"): 6,
        ("citation_precision", "no_claims"): 6,
        ("citation_recall", "ok"): 6,
        ("retrieval_recall", "no_reference"): 6,
        ("names", "ok"): 6,
    }
