"""What rag_evals' judge is asked, in our words: the same fields in the reply, chunks numbered from 0."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.compat.tool import AS_DATA, fenced


def _instructions(task: str, form: str) -> str:
    return "\n\n".join(
        [
            " ".join(task.split()),
            f"Reply with one JSON object of this form and nothing else:\n{form}",
            AS_DATA,
        ]
    )


FAITHFULNESS = _instructions(
    """Take the answer apart into the single statements it makes, in its own words. Decide for each
    whether the chunks support it: they state it, or it follows from them beyond reasonable doubt. A
    statement that is supported in part only is not supported. Name the numbers of all chunks that
    support it; none where it is not supported. Judge nothing but this: neither whether the statement is
    true, nor whether it answers the question.""",
    '{"statements": [{"statement": "what is stated", "reasoning": "why, briefly", "is_supported": true,'
    ' "supporting_chunk_ids": [0]}]}',
)

PRECISION = _instructions(
    """Decide for each chunk whether it is relevant to the question: whether anything in it would help
    to answer the question, directly or indirectly, whatever the answer made of it. Grade every chunk
    once, by its number.""",
    '{"graded_chunks": [{"id_chunk": 0, "score": true}, {"id_chunk": 1, "score": false}]}',
)

RELEVANCE = _instructions(
    """Rate how well the answer addresses the question, whether it is true or not, with numbers from 0.0
    to 1.0: `topical_match`, whether it is about what was asked; `completeness`, whether it covers every
    part of the question; `conciseness`, whether it is free of what was not asked. `overall_score` is
    the average of the three.""",
    '{"overall_score": 0.9, "topical_match": 1.0, "completeness": 0.8, "conciseness": 0.9,'
    ' "reasoning": "why, briefly"}',
)


def material(question: str, answer: str | None, contexts: Sequence[str]) -> str:
    """Render what is judged."""
    asked = [fenced("question", question)]
    answered = [] if answer is None else [fenced("answer", answer)]
    chunks = [fenced(f"chunk {number}", text) for number, text in enumerate(contexts)]
    return "\n\n".join([*asked, *answered, *chunks])


def again(prompt: str, fault: str) -> str:
    """Ask the same once more, and say what was wrong with the last reply."""
    return f"{prompt}\n\nYour last reply was refused: {fault}. Reply again, with the whole JSON object."
