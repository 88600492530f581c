"""What a large model said of 28 answers, scored with and without the marks of material flaws."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import (
    ExtractedClaim,
    ExtractInput,
    ExtractReply,
    VerifyInput,
    VerifyReply,
)
from ragtrace.metrics import metric_named
from ragtrace.model import MetricResult, RagRecord
from ragtrace.pipeline import evaluate
from ragtrace.ports import JudgeRequest

FILE = Path(__file__).parents[2] / "data" / "large_judge" / "answers.jsonl"
ROWS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
BOTH_KINDS = "contradicted == 0 and unsupported == 0 and coverage >= 0.5"


async def judged(row: dict[str, Any], *, pass_when: str | None = None) -> MetricResult:
    claims = {" ".join(claim["claim"].split()): claim for claim in row["claims"]}

    def reply(request: JudgeRequest[Any]) -> Any:
        if isinstance(request.inputs, ExtractInput):
            if request.inputs.surroundings:  # asked again about sentences without a claim
                return ExtractReply(claims=[], refusal=False)
            numbers = [sentence.number for sentence in request.inputs.sentences]
            found = [
                ExtractedClaim(
                    id=n, sentence_ids=numbers[n - 1 :: len(claims)] or numbers[:1], text=text, kind="factual"
                )
                for n, text in enumerate(claims, start=1)
            ]
            return ExtractReply(claims=found, refusal=False)
        assert isinstance(request.inputs, VerifyInput)
        assert request.inputs.question == row["question"]
        chunks = [chunk.number for chunk in request.inputs.chunks]
        return VerifyReply.model_validate(
            {
                "verdicts": [
                    {
                        "id": each.number,
                        "chunks": chunks,
                        "quote": said["quote"] or "",
                        "label": said["label"],
                        "reason": said["reason"] or "",
                        **({"material": said["material"]} if "material" in said else {}),
                    }
                    for each in request.inputs.claims
                    for said in [claims[each.text]]
                ]
            }
        )

    record = RagRecord.of(question=row["question"], contexts=row["contexts"], answer=row["answer"])
    metric = metric_named("faithfulness", pass_when=pass_when)
    (result,) = (await evaluate(record, metrics=[metric], judge=ScriptedJudge(reply))).results
    return result


async def test_the_published_table_is_what_the_marks_give() -> None:
    for rule in [BOTH_KINDS, None]:
        labels = [((await judged(row, pass_when=rule)).label.value, row["answer_label"]) for row in ROWS]
        outcomes = Counter(labels)
        assert outcomes["fail", "neutral"] + outcomes["fail", "contradicted"] == 16, rule
        assert outcomes["pass", "neutral"] + outcomes["pass", "contradicted"] == 1, rule
        assert (outcomes["pass", "supported"], outcomes["fail", "supported"]) == (10, 1), rule


async def test_an_answer_whose_flaws_are_all_incidental_passes_with_the_same_score() -> None:
    row = next(row for row in ROWS if row["id"] == "ragtruth-qa-12383-mistral-7B-instruct")
    mild = {**row, "claims": [claim for claim in row["claims"] if not claim.get("material", False)]}
    usual, strict = await judged(mild), await judged(mild, pass_when=BOTH_KINDS)
    assert (usual.label, strict.label) == ("pass", "fail")
    assert usual.score == strict.score
    assert usual.explanation == f"4 of {len(mild['claims'])} claims flawed only incidentally"
