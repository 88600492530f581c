"""The application never notices, and no text goes where it should not."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_GUARD: Final = "ragtrace/capture/_guard.py"
_POLICY: Final = "ragtrace/capture/privacy/policy.py"
_HOSTILE_TESTS: Final = "tests/unit/capture/test_hostile.py"
_MODES_TESTS: Final = "tests/unit/capture/test_content_modes.py"

MUTANTS: Final = (
    *(
        Mutant(
            promise="privacy",
            breaks=breaks,
            file="ragtrace/capture/privacy/policy.py",
            old=old,
            new=new,
            tests=(f"tests/unit/capture/test_every_place.py::{test}",),
        )
        for breaks, old, new, test in (
            (
                "an id whose check fails is recorded as it is",
                "        if _is_identifying(text, is_opaque, self.phone_regions) is not False:\n",
                "        if _is_identifying(text, is_opaque, self.phone_regions):\n",
                "test_redacted_an_id_that_cannot_be_checked_is_not_written",
            ),
            (
                "ids that are no opaque tokens are recorded without texts as they are",
                "is_opaque and not (_detects()",
                "not (_detects()",
                "test_nothing_personal_is_written",
            ),
            (
                "an attribute is written without the policy",
                "                if (named := self.identifier(value)) is not None:\n                    written[key] = named\n",
                "                written[key] = value\n",
                "test_nothing_personal_is_written",
            ),
        )
    ),
    Mutant(
        promise="capture",
        breaks="an error of ragtrace's own reaches the application",
        file=_GUARD,
        old="        except Exception as exc:  # noqa: BLE001 - the application guard\n",
        new="        except ArithmeticError as exc:\n",
        tests=(f"{_HOSTILE_TESTS}::test_whatever_is_told_nothing_raises",),
    ),
    Mutant(
        promise="no content",
        breaks="an error of ragtrace's own is logged with what it quotes",
        file=_GUARD,
        old='    log.warning("ragtrace: %s failed with %s and was skipped", where, kind)\n',
        new='    log.warning("ragtrace: %s failed with %s and was skipped: %s", where, kind, exc)\n',
        tests=(f"{_HOSTILE_TESTS}::test_what_cannot_be_read_is_told_once_without_content_and_counted",),
    ),
    Mutant(
        promise="no content",
        breaks="with content off, texts are recorded all the same",
        file=_POLICY,
        old='        if value is None or self.policy.mode == "off":\n',
        new="        if value is None:\n",
        tests=(f"{_MODES_TESTS}::test_off_nothing_is_computed_from_a_text",),
    ),
    Mutant(
        promise="no content",
        breaks="metadata that is not listed is recorded",
        file=_POLICY,
        old="            return _is_among(metadata_key, self.metadata) is True\n",
        new="            return True\n",
        tests=(f"{_MODES_TESTS}::test_metadata_that_is_not_listed_is_dropped_and_counted",),
    ),
)
