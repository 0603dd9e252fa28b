"""A chat template comes with a model, whose author may write any program: it ends, and stays small."""

import json
from typing import Any

import pytest

from graphpod_runtime.front.text import bounded_jinja, template_sizes
from graphpod_runtime.front.text.bounded_jinja import BoundedEnvironment
from graphpod_runtime.front.text.chat_template import ChatTemplate, TemplateError

HI = [{"role": "user", "content": "hi"}]
EACH = "{% for a in range(9999) %}"
NS = "{% set n = namespace(s=VALUE) %}"
DOUBLED = NS.replace("VALUE", "'aa'") + "{% for a in range(99) %}{% set n.s = n.s OP n.s %}{% endfor %}{{ n.s }}"
NESTED = NS.replace("VALUE", "[1]") + "{% for a in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
KEPT = NS.replace("VALUE", "[]") + "{% for a in range(999) %}{% set n.s = [n.s, WHAT] %}{% endfor %}"
LONG_TEXT = "{% set t = 'a,\n' * 9999 %}"
STEPS, LONG = "take more than 20000 steps", "texts and lists have more than 100000 characters"
WIDE = "formats by a width that it computes"


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
        ("{{ 'a' * 10**9 }}", LONG),
        ("{% set x = 10**9 * [1] %}", LONG),
        ("{% set x = 9 ** 999999 %}", "a power of more than"),
        ("{{ 'a'.ljust(10**9) }}", LONG),
        ("{{ 'a' | center(10**9) }}", LONG),
        ("{{ 'a\n' | indent(width=10**9) }}", LONG),
        ("{{ [1] | slice(10**9) | list }}", LONG),
        (DOUBLED.replace("'aa'", "[1]").replace("OP", "+"), LONG),
        (DOUBLED.replace("'aa'", "9").replace("OP", "*"), "a product of more than"),
        *(
            (text, LONG)
            for text in (
                "{{ '%999999d' % 1 }}",
                "{{ '%-.999999f' % 1 }}",
                "{{ '%%%999999d' | format(1) }}",
                "{{ '{:>999999}'.format(1) }}",
                "{{ (['a' * 999] * 99) ~ 1 }}",
                NESTED + "{{ n.s }}",
                NESTED + "{{ n.s | string }}",
                NESTED + "{{ n.s ~ 1 }}",
                NESTED + "{{ n.s | tojson }}",
                NESTED + "{{ '%s' % [n.s] }}",
                NESTED + "{{ '{}'.format(n.s) }}",
                NESTED + "{{ n.s | upper }}",
                NESTED + "{{ {1: n.s}.items() | string }}",
                "{{ range(999) | list | tojson(indent=999) }}",
                "{{ [1] | tojson(indent='a' * 99999) }}",
                LONG_TEXT + "{{ t | replace('a', 'b' * 999) }}",
                LONG_TEXT + "{{ t.replace('', 'b' * 99) }}",
                LONG_TEXT + "{{ t.translate({97: 'b' * 99}) }}",
                LONG_TEXT + "{{ t | list | join('b' * 99) }}",
                LONG_TEXT + "{{ ('b' * 99).join(t) }}",
                LONG_TEXT + "{{ t | indent(99) }}",
                LONG_TEXT + "{{ t | wordwrap(1, wrapstring=t) }}",
                LONG_TEXT + "{% set x = t.split(',') %}",
                LONG_TEXT + "{% set x = t.splitlines() %}",
                LONG_TEXT + "{{ t | urlencode }}",
                LONG_TEXT + "{{ '%s%s%s%s' % (t, t, t, t) }}",
                LONG_TEXT + "{{ '{0}{0}{0}{0}'.format(t) }}",
                "{{ ('\\t' * 999).expandtabs(999) }}",
                "{{ ([[1] * 99] * 99) | sum(start=[]) }}",
                KEPT.replace("WHAT", "('a' * 999)[1:]"),
                KEPT.replace("WHAT", "range(99) | list"),
                KEPT.replace("WHAT", "dict.fromkeys(range(99))").replace("{%", "{% set dict = {} %}{%", 1),
                f"{{% set x %}}{EACH}{{{{ 'a' * 99 }}}}{{% endfor %}}{{% endset %}}",
                f"{{% macro f() %}}{EACH}{'a' * 99}{{% endfor %}}{{% endmacro %}}{{% set x = f() %}}",
            )
        ),
        ("{{ '%(a)*d' % [1] }}", WIDE),
        ("{{ 'a{a:{w}}'.format_map({'a': 1, 'w': 10**9}) }}", WIDE),
        ("{{ (1).to_bytes(10**9, 'big') }}", "calls to_bytes of a number or of bytes"),
        ("{{ 'a'.encode().hex() }}", "calls hex of a number or of bytes"),
        ("{% set n = namespace() %}{{ [n] }}", "writes a namespace as a text"),
        ("{{ lipsum(n=10**6) }}", "'lipsum' is undefined"),
    ],
)
def test_a_template_that_does_too_much_says_what(template: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        ChatTemplate(template, {}).render(HI, {})


@pytest.mark.parametrize(
    "value", ['a\u0001é\n"\U000e0001', [["\U000e0001\n" * 9, "b"], ["x", {"a": [1, -(2**90), None, 1.5e300]}]]]
)
def test_what_a_filter_makes_is_no_more_than_is_counted(value: Any) -> None:
    environment = BoundedEnvironment()
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.measure("tojson", template_sizes.as_json)
    for name, given in (
        *((name, "") for name in ("string", "upper", "title", "e", "forceescape", "urlencode", "pprint", "trim")),
        *((name, "") for name in ("tojson", "list", "wordcount", "striptags", "urlize", "reverse", "sort")),
        ("string | indent", "(9, true, true)"),
        ("string | indent", "('xyz', first=true)"),
        ("string | wordwrap", "(2, wrapstring='abc')"),
        ("center", "(200)"),
        ("replace", "('', 'abc')"),
        ("replace", "('n', 'abc', 1)"),
        ("join", "('abc')"),
        ("tojson", "(indent=9)"),
    ):
        source = f"{{% set made = value | {name}{given} %}}{{% if seen(made) %}}{{% endif %}}"
        made: list[Any] = []
        template = environment.from_string(source, globals={"seen": made.append})
        environment.written(template, {"value": value})
        long = sum(len(one) if isinstance(one, str) else 1 for one in made)
        assert long <= environment.characters, (name, given)


def test_each_rendering_counts_from_the_start() -> None:
    template = ChatTemplate(f"{EACH}a{{% endfor %}}", {})
    assert {template.render(HI, {}) for _ in range(5)} == {"a" * 9999}


def test_bounds_change_nothing_that_a_template_writes() -> None:
    written = ChatTemplate(
        "{% for m in messages recursive %}{{ loop.index ~ '/' ~ loop.length }} {{ m.role + ': ' + m.content }}"
        "{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}{{ 2 * 3 + 1 }}{{ '-' * 3 }}{{ nothing ~ 'x' }}"
        "{{ ([1] + [2]) | length }}{{ 2 ** 10 }}{% for a in range(9) if a is odd %}{% if a > 5 %}{% break %}{% endif %}"
        "{{ a }}{% endfor %}{{ '%5.1f%%999999' % 2 }}{{ '%s' | format('a') }}{{ '{{\"a\": {:>3}}}'.format(7) }}"
        "{{ 7 % 4 }}{{ [1, 'a', none] | join(', ') }}{{ messages | map(attribute='role') | join }}{{ [1, 2] | sum }}"
        "{{ messages | sum(attribute='content', start='') if 0 }}{{ 'a-b'.split('-')[1:] }}{{ {'a': '<é'} | tojson }}",
        {},
    )
    formatted = '35  2.0%999999a{"a":   7}3'
    listed = '1, a, None{}3[\'b\']{{"a": "<é"}}'
    assert written.render([*HI, *HI], {}) == "1/2 user: hi, 2/2 user: hi7---x210241" + formatted + listed.format(
        "useruser"
    )
    assert written.render([], {}) == "none7---x210241" + formatted + listed.format("")
