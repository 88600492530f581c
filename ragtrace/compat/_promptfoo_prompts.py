"""What promptfoo's grader is asked, in our words: the same steps, the same text formats in the reply."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.compat.tool import AS_DATA, fenced


def longform(asked: str, answer: str) -> str:
    """Ask for the statements of an answer, one a line."""
    return _prompt(
        """Restate the answer to the question below as a list of statements, so that each is understood
        without the question and the others: names instead of pronouns, one fact each.""",
        "Write one statement a line, and nothing else: no heading, no empty lines.",
        fenced("question", asked),
        fenced("answer", answer),
    )


def nli(context: str, statements: Sequence[str]) -> str:
    """Ask for a verdict on each statement, and a final line with all of them."""
    return _prompt(
        """Decide for each statement below whether it can be inferred from the context: Yes or No.
        Explain first, briefly, then give the verdict. What the context does not mention is a No.""",
        "Write for each statement, in their order:\n"
        "1. the statement\n"
        "Explanation: why Verdict: Yes.\n"
        "End with one line that repeats the verdicts alone, each followed by a full stop:\n"
        "Final verdict for each statement in order: Yes. No.",
        fenced("context", context),
        fenced(
            "statements", "\n".join(f"{number}. {line}" for number, line in enumerate(statements, start=1))
        ),
    )


def question(answer: str) -> str:
    """Ask for a question that the answer answers."""
    return _prompt(
        "Think of the question that the text below answers.",
        "Write that one question and nothing else.",
        fenced("text", answer),
    )


def recall(context: str, reference: str) -> str:
    """Ask which sentences of the reference answer the context bears out."""
    return _prompt(
        """Go through the reference answer below sentence by sentence and decide for each whether the
        context bears it out.""",
        "Write one numbered line a sentence: the sentence, a short reason, and at the end of the line"
        " [Attributed] or [Not Attributed]:\n"
        "1. the sentence. The reason. So [Attributed]",
        fenced("context", context),
        fenced("reference answer", reference),
    )


def relevance(asked: str, context: str) -> str:
    """Ask for what in the context helps to answer the question, copied."""
    return _prompt(
        """Copy from the context below the sentences that are needed to answer the question, character
        by character, changing nothing.""",
        "Write one sentence a line, and nothing else. If none helps, or the question cannot be answered"
        ' from the context, write "Insufficient Information" alone.',
        fenced("question", asked),
        fenced("context", context),
    )


def _prompt(task: str, form: str, *material: str) -> str:
    return "\n\n".join([" ".join(task.split()), form, AS_DATA, *material])
