"""The book of rules, docs/semantics.md: no rule without a case or test, no case and no citation without a rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs" / "semantics.md"
CASES = ROOT / "tests" / "conformance" / "cases"
# Where rules are cited: everything that people write here.
WRITTEN = ("*.md", "docs/**/*.md", "benchmarks/*.md", "{}/**/*.py", "tests/**/*.case")
FOLDERS = ("millstream", "tests", "examples", "benchmarks", "scripts")

_HEADING = re.compile(r"^### Rule (\d+)\n", re.MULTILINE)
_CITATION = re.compile(r"\brules? (\d+(?:(?:, and|, or|,| and| or| to) \d+)*)", re.IGNORECASE)


def chapters() -> list[tuple[int, str]]:
    """Every rule's number and its text, in the order of the book."""
    _, *parts = _HEADING.split(re.sub(r"^## .*\n", "", BOOK.read_text(), flags=re.MULTILINE))
    return [(int(number), text) for number, text in zip(parts[::2], parts[1::2], strict=True)]


RULES = dict(chapters())


def proofs(text: str) -> list[Path]:
    """The files that a rule names as its proofs."""
    _, _, below = text.partition("\nProved by:\n")
    return [(BOOK.parent / link).resolve() for link in re.findall(r"\]\(([^)]+)\)", below)]


def cited(text: str) -> Iterator[int]:
    """The numbers of the rules that a text speaks of, in lines of code, comments or prose."""
    for found in _CITATION.finditer(re.sub(r"\s*\n[\s#]*", " ", text)):
        last = 0
        for word, number in re.findall(r"(to )?(\d+)", found[1]):
            yield from range(last + 1 if word else int(number), int(number) + 1)
            last = int(number)


def written() -> list[Path]:
    patterns = [p.format(folder) for p in WRITTEN for folder in (FOLDERS if "{}" in p else [""])]
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in found if "/." not in str(path.relative_to(ROOT)))


def test_rules_are_numbered_from_1_without_gaps_and_each_once() -> None:
    assert [number for number, _ in chapters()] == list(range(1, len(RULES) + 1))


@pytest.mark.parametrize("number", RULES)
def test_a_rule_has_a_name_a_sentence_an_example_and_proofs(number: int) -> None:
    text = RULES[number]
    assert re.match(r"\*\*[^*]+\.\*\* \S.*?\.\n```\n.+?\n```\nProved by:\n\[", text, re.DOTALL)
    named = proofs(text)
    assert [path for path in named if not path.is_file()] == []
    tests = [path for path in named if path.suffix == ".py"]
    assert [path for path in tests if "\ndef test_" not in path.read_text()] == []
    assert [path for path in named if path.suffix not in (".case", ".py")] == []


@pytest.mark.parametrize("number", RULES)
def test_a_rule_s_example_stands_in_its_first_proof(number: int) -> None:
    """Every line is part of a line there, in the same order."""
    example = re.search(r"```\n(.*?)\n```", RULES[number], re.DOTALL)
    assert example is not None
    lines = iter(proofs(RULES[number])[0].read_text().splitlines())
    lost = [
        line for line in example[1].splitlines() if not any(line.strip() in one for one in lines)
    ]
    assert lost[:1] == []


@pytest.mark.parametrize("case", sorted(CASES.glob("*.case")), ids=lambda path: path.stem)
def test_a_case_belongs_to_the_rule_of_its_number(case: Path) -> None:
    found = re.match(r"r(\d\d)_", case.name)
    assert found is not None, "a case is named rNN_what_it_shows.case"
    number = int(found[1])
    assert number in RULES
    assert next(cited(case.read_text().partition("\n")[0]), None) == number
    link = f"[{case.stem[4:].replace('_', ' ')}](../{case.relative_to(ROOT)})"
    assert case in proofs(RULES[number]), f"docs/semantics.md, rule {number}: add {link}"


def test_a_rule_proves_itself_with_its_own_cases() -> None:
    wrong = [
        (number, path.name)
        for number, text in RULES.items()
        for path in proofs(text)
        if path.suffix == ".case" and not path.name.startswith(f"r{number:02}_")
    ]
    assert wrong == []


def test_every_rule_that_is_cited_is_in_the_book() -> None:
    unknown = [
        (str(path.relative_to(ROOT)), number)
        for path in written()
        for number in cited(path.read_text())
        if number not in RULES
    ]
    assert unknown == []


def test_citations_are_found_in_all_their_forms() -> None:
    text = "(rule 6)\n# Rules 9, 18\n# and 20 to 22: as rule\n    # 41, 56 say. Rules of 7 and 3 rules."
    assert list(cited(text)) == [6, 9, 18, 20, 21, 22, 41, 56]
    places = {path.relative_to(ROOT).parts[0] for path in written() if any(cited(path.read_text()))}
    assert {"millstream", "tests", "docs"} <= places
