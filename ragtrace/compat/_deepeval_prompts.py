"""What deepeval's judge is asked, in our words: the same steps, the same fields in the reply."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import JsonValue

from ragtrace.compat.tool import AS_DATA, fenced

_EACH_WITH_REASON = '{"verdicts": [{"verdict": "yes", "reason": "why"}, {"verdict": "no", "reason": "why"}]}'


def truths(context: str, limit: int | None) -> str:
    """Ask for the facts that a context states."""
    return _prompt(
        f"""List {_how_many(limit)} stated in the context below. Write each as one coherent sentence
        that is understood without the others. Take nothing from outside the context, even where the
        context is wrong.""",
        '{"truths": ["first fact", "second fact"]}',
        fenced("context", context),
    )


def claims(answer: str) -> str:
    """Ask for what an answer claims."""
    return _prompt(
        """List every factual claim that the answer below makes. Take each as it is made, true or not,
        and word it so that it is understood without the others. Leave out opinions and pleasantries.""",
        '{"claims": ["first claim", "second claim"]}',
        fenced("answer", answer),
    )


def claim_verdicts(claimed: JsonValue, known: str, *, unsure: str) -> str:
    """Ask whether each claim agrees with the facts."""
    return _prompt(
        f"""Judge each claim below against the facts below, in the order of the claims, one verdict for
        each. Say "yes" if the facts bear the claim out, "no" only if they directly contradict it, and
        "{unsure}" if they neither bear it out nor contradict it. Use no knowledge of your own. Give a
        `reason` wherever the verdict is not "yes": what the facts say instead, or that they are silent.""",
        f'{{"verdicts": [{{"verdict": "yes"}}, {{"verdict": "{unsure}", "reason": "why"}}]}}',
        fenced("facts", known),
        fenced("list of claims", _listed(claimed)),
    )


def statements(answer: str) -> str:
    """Ask for the statements that an answer is made of."""
    return _prompt(
        """Break the answer below into the statements it is made of. Short remarks and single words
        count as statements too; leave none out.""",
        '{"statements": ["first statement", "second statement"]}',
        fenced("answer", answer),
    )


def answer_verdicts(question: str, stated: JsonValue, *, unsure: str) -> str:
    """Ask whether each statement of an answer helps to answer the question."""
    return _prompt(
        f"""Judge for each statement below, in their order, one verdict for each, whether it helps to
        answer the question. Say "yes" if it does, "no" if it has nothing to do with it, and "{unsure}"
        if it is no answer by itself but may support one. Give a `reason` wherever the verdict is not
        "yes".""",
        f'{{"verdicts": [{{"verdict": "yes"}}, {{"verdict": "{unsure}", "reason": "why"}}]}}',
        fenced("question", question),
        fenced("list of statements", _listed(stated)),
    )


def chunk_verdicts(question: str, reference: str, contexts: Sequence[str]) -> str:
    """Ask whether each chunk helped to reach the reference answer."""
    return _prompt(
        f"""{_counted(contexts)} Judge each document, in the given order, one verdict for each: would it
        help to arrive at the expected answer to the question? Say "yes" if it holds anything of use for
        that, else "no". Always give a `reason` that quotes the words that decide.""",
        _EACH_WITH_REASON,
        fenced("question", question),
        fenced("expected answer", reference),
        fenced("documents", _listed(contexts)),
    )


def recall_verdicts(reference: str, contexts: Sequence[str]) -> str:
    """Ask whether each sentence of the reference answer can be traced to the chunks."""
    return _prompt(
        """Go through the expected answer below sentence by sentence: one verdict for each sentence, and
        no others. Say "yes" if the sentence can be traced to a node of the retrieved context, else
        "no". Always give a `reason` that names the node and quotes it briefly, or says what is missing.""",
        _EACH_WITH_REASON,
        fenced("expected answer", reference),
        fenced("retrieved context", _listed(contexts)),
    )


def context_statements(question: str, context: str) -> str:
    """Ask which statements of one chunk are relevant to the question."""
    return _prompt(
        """Take the high-level statements out of the context below and judge for each whether it is
        relevant to the question: "yes" or "no". Repeat the statement in `statement`. Only where the
        verdict is "no", give a `reason` that quotes the words that decide. A context without any
        statement gets an empty list.""",
        '{"verdicts": [{"verdict": "yes", "statement": "what is stated"},'
        ' {"verdict": "no", "statement": "what is stated", "reason": "why"}]}',
        fenced("question", question),
        fenced("context", context),
    )


def context_verdicts(answer: str, contexts: Sequence[str]) -> str:
    """Ask whether the answer agrees with each chunk."""
    return _prompt(
        f"""{_counted(contexts)} Judge for each document, in the given order, one verdict for each,
        whether the answer agrees with it. Say "no" only if the answer contradicts the document; a
        detail that the document does not mention is no contradiction: "yes". Take each document at its
        word. Always give a `reason`.""",
        _EACH_WITH_REASON,
        fenced("documents", _listed(contexts)),
        fenced("answer", answer),
    )


def reason(measured: str, score: float, findings: Sequence[str]) -> str:
    """Ask for one sentence on why the score is what it is."""
    return _prompt(
        f"""The {measured} of an answer of a retrieval system was measured as {score:.2f}. Say in one or
        two sentences why the score is what it is, from the findings below and nothing else. Name the
        score.""",
        '{"reason": "The score is … because …"}',
        fenced("findings", _listed(findings) if findings else "(nothing speaks against a better score)"),
    )


def _prompt(task: str, form: str, *material: str) -> str:
    asked = f"Reply with one JSON object of this form and nothing else:\n{form}"
    return "\n\n".join([" ".join(task.split()), asked, AS_DATA, *material])


def _how_many(limit: int | None) -> str:
    if limit is None:
        return "all undisputed facts"
    if limit == 1:
        return "the single most important undisputed fact"
    return f"the {limit} most important undisputed facts per document"


def _counted(contexts: Sequence[str]) -> str:
    return f"There {'is 1 document' if len(contexts) == 1 else f'are {len(contexts)} documents'} below."


def _listed(entries: JsonValue | Sequence[str]) -> str:
    texts = entries if isinstance(entries, (list, tuple)) else [entries]
    lines = (text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in texts)
    return "\n\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
