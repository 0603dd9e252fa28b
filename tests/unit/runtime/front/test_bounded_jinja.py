"""A chat template comes with a model, whose author may write any program: it ends, and stays small."""

import pytest

from graphpod_runtime.front.text import bounded_jinja
from graphpod_runtime.front.text.chat_template import ChatTemplate, TemplateError

HI = [{"role": "user", "content": "hi"}]
EACH = "{% for a in range(9999) %}"
DOUBLED = "{% set n = namespace(s='aa') %}{% for a in range(99) %}{% set n.s = n.s OP n.s %}{% endfor %}{{ n.s }}"
STEPS, LONG, REPEATS = "take more than 20000 steps", "writes more than 100000 characters", "repeats a text or list"
WIDE = "formats by a width of six digits or more, or one that it computes"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_jinja, "MOST_STEPS", 20_000)
    monkeypatch.setattr(bounded_jinja, "MOST_CHARACTERS", 100_000)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (f"{EACH}{EACH}{{% endfor %}}{{% endfor %}}", STEPS),
        (f"{EACH}{EACH}{{% continue %}}{{% endfor %}}{{% endfor %}}", STEPS),
        (f"{{% set x %}}{EACH}{EACH}{{% endfor %}}{{% endfor %}}{{% endset %}}", STEPS),
        (f"{{% macro f() %}}{EACH}{EACH}a{{% endfor %}}{{% endfor %}}{{% endmacro %}}{{{{ f() }}}}", STEPS),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", STEPS),
        ("{% for a in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}", STEPS),
        (f"{EACH}aaaaaaaaaaaa{{% endfor %}}", LONG),
        (DOUBLED.replace("OP", "+"), LONG),
        (DOUBLED.replace("OP", "~"), LONG),
        ("{{ 'a' * 10**9 }}", REPEATS),
        ("{% set x = 10**9 * [1] %}", REPEATS),
        ("{% set x = 9 ** 999999 %}", "a power of more than"),
        ("{{ 'a'.ljust(10**9) }}", "gives ljust a number above"),
        ("{{ 'a' | center(10**9) }}", "gives center a number above"),
        ("{{ 'a\n' | indent(width=10**9) }}", "gives indent a number above"),
        ("{{ [1] | slice(10**9) | list }}", "gives slice a number above"),
        (DOUBLED.replace("'aa'", "[1]").replace("OP", "+"), REPEATS),
        (DOUBLED.replace("'aa'", "9").replace("OP", "*"), "a product of more than"),
        ("{{ '%999999d' % 1 }}", WIDE),
        ("{{ '%-.999999f' % 1 }}", WIDE),
        ("{{ '%(a)*d' % [1] }}", WIDE),
        ("{{ '%%%999999d' | format(1) }}", WIDE),
        ("{{ '{:>999999}'.format(1) }}", WIDE),
        ("{{ '{a:{w}}'.format_map({'a': 1, 'w': 10**9}) }}", WIDE),
        ("{{ lipsum(n=10**6) }}", "'lipsum' is undefined"),
    ],
)
def test_a_template_that_does_too_much_says_what(template: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        ChatTemplate(template, {}).render(HI, {})


def test_each_rendering_counts_from_the_start() -> None:
    template = ChatTemplate(f"{EACH}a{{% endfor %}}", {})
    assert {template.render(HI, {}) for _ in range(5)} == {"a" * 9999}


def test_bounds_change_nothing_that_a_template_writes() -> None:
    written = ChatTemplate(
        "{% for m in messages recursive %}{{ loop.index ~ '/' ~ loop.length }} {{ m.role + ': ' + m.content }}"
        "{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}{{ 2 * 3 + 1 }}{{ '-' * 3 }}{{ nothing ~ 'x' }}"
        "{{ ([1] + [2]) | length }}{{ 2 ** 10 }}{% for a in range(9) if a is odd %}{% if a > 5 %}{% break %}{% endif %}"
        "{{ a }}{% endfor %}{{ '%5.1f%%999999' % 2 }}{{ '%s' | format('a') }}{{ '{{\"a\": {:>3}}}'.format(7) }}"
        "{{ 7 % 4 }}",
        {},
    )
    formatted = '35  2.0%999999a{"a":   7}3'
    assert written.render([*HI, *HI], {}) == "1/2 user: hi, 2/2 user: hi7---x210241" + formatted
    assert written.render([], {}) == "none7---x210241" + formatted
