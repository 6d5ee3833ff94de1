#!/usr/bin/env python3
"""Writes the golden outputs of tests/tokenizer/{jinja,chat_template}_test.cc: what jinja2, set up as transformers sets it up, makes of
snippets and of the templates in tests/fixtures/chat_template/templates.

Usage: tools/make_chat_template_fixtures.py        (needs jinja2; writes tests/fixtures/chat_template/*.json)
       tools/make_chat_template_fixtures.py --check FILE.jinja ... > cases.json    (the same conversations through other templates)
"""

import copy
import datetime
import itertools
import json
import pathlib
import re
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "chat_template"
CLOCK = datetime.datetime(2024, 7, 26, 13, 5, 9)
REASONING = ("reasoning_content", "thinking", "reasoning")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: CLOCK.strftime(f)
    env.globals["dict"] = lambda *a, **k: dict(*a, **k)
    env.globals["namespace"] = TemplateNamespace
    return env


ENV = make_environment()
VARIABLES = {
    "s": "Hello, World", "u": "Grüße 👋🏽 世界", "empty": "", "pad": "  a b\t c \n", "n": 7, "neg": -3, "f": 2.5, "big": 1e20, "yes": True,
    "no": False, "nothing": None, "words": ["pear", "Apple", "fig", "apple"], "nums": [3, 1, 2], "none_list": [],
    "nested": [[1, 2], ["a", None, True], {"k": [1.0, "it's"]}], "d": {"b": 1, "a": "x", "items_": [1]},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 41, "nick": None}],
    "msg": {"role": "user", "content": "hi", "items": 3}, "html": "<b>\"x\" & 'y'</b>", "lines": "one\ntwo\n\nthree",
}


def outcome(template, variables):
    try:
        # A copy, because "{{ a_list|indent }}" changes the list before it fails.
        return {"o": ENV.from_string(template).render(**copy.deepcopy(variables))}
    except Exception:
        return {"e": True}


def expressions():
    values = ["s", "u", "empty", "n", "neg", "f", "big", "yes", "no", "nothing", "nums", "d", "missing", "none_list", "(1, 'a')", "0", "''"]
    for a in values:
        yield a
        yield f"[{a}]"
        yield f"not {a}"
        yield f"{a} if {a} else 'else'"
        yield f"{a} or 'or'"
        yield f"{a} and 'and'"
        yield f"{a}|tojson"
        for test in ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence",
                     "true", "false", "not none", "callable"]:
            yield f"{a} is {test}"
        for name in ["length", "count", "default('D')", "d('D', true)", "upper", "lower", "title", "capitalize", "trim", "string", "int",
                     "float", "list", "first", "last", "abs", "round", "reverse|list", "join('-')", "e", "safe", "sum", "min", "max", "sort",
                     "unique|list", "items|list", "dictsort", "tojson(indent=2)", "replace('l', 'L')", "indent"]:
            yield f"{a}|{name}"
    pool = ["7", "-3", "2.5", "0", "'ab'", "[1]", "true", "none", "(1,)", "missing", "{'a': 1}"]
    for a, b in itertools.product(pool, pool):
        for op in ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in"]:
            yield f"{a} {op} {b}"
    for a, b in itertools.product(["7", "-7", "7.5", "-7.5", "2", "-2", "0.5"], repeat=2):
        for op in ["/", "//", "%", "**", "<"]:
            yield f"{a} {op} {b}"
    bounds = ["", "0", "1", "2", "-1", "-2", "5", "-9", "99"]
    for start, stop in itertools.product(bounds, bounds):
        yield f"u[{start}:{stop}]"
        yield f"words[{start}:{stop}]"
        for step in ["2", "-1", "-2"]:
            yield f"u[{start}:{stop}:{step}]"
    for i in ["0", "-1", "3", "99", "-99", "'x'", "1.0", "true", "none"]:
        for value in ["u", "words", "d", "range(4)", "(1, 2)", "nums"]:
            yield f"{value}[{i}]"
    for x in ["0.1", "1e16", "1e15", "123456789.0", "1e-5", "0.0001", "1.5e300", "100.0", "3.14159265358979", "1e22", "5e-324", "0.1 + 0.2",
              "2 / 3", "-0.0", "1e999", "-1e999", "1_000", "0x1F", "0b101", "0o17", "1_0.5", "7e2", "7.e2", "1.real"]:
        yield x
        yield f"({x})|tojson"
    for x in ["2.5", "3.5", "-2.5", "2.675", "1234.5678", "0.5", "7", "1.005", "15", "-25"]:
        for arguments in ["", "(1)", "(2)", "(0, 'ceil')", "(1, 'floor')", "(-1)", "(0, 'floor')"]:
            yield f"{x}|round{arguments}"
    for text in ["'42'", "' 42 '", "'4_2'", "'4.9'", "'x'", "'-7'", "'1e3'", "'inf'", "''", "none", "true", "2.9", "-2.9", "[]", "'0x1f'", "'+3'"]:
        yield f"{text}|int"
        yield f"{text}|int(9)"
        yield f"{text}|float"
        yield f"{text}|float(1.5)"
    yield from methods()
    yield from containers()


def methods():
    for text in ["s", "u", "pad", "lines", "''", "'ÄÖß ΣΑΣ ǆ'", "\"they're bill's\"", "'a,b,,c'", "'xxabcxx'", "'MiXed 12ab'"]:
        for call in ["strip()", "lstrip()", "rstrip()", "strip('x')", "strip(' a')", "split()", "split(' ')", "split(',')", "split('l', 1)",
                     "rsplit()", "rsplit(',', 1)", "rsplit(None, 1)", "split(none, 1)", "split(maxsplit=1)", "splitlines()", "splitlines(true)",
                     "startswith('H')", "endswith('d')", "startswith(('G', 'H'))", "startswith('e', 1)", "upper()", "lower()", "title()",
                     "capitalize()", "replace('l', 'LL')", "replace('l', '', 1)", "replace('', '-')", "count('l')", "find('o')", "rfind('o')",
                     "find('zz')", "index('o')", "join(['1', '2'])", "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()",
                     "islower()", "partition(',')", "rpartition(',')", "removeprefix('He')", "removesuffix('ld')", "zfill(15)", "ljust(14, '.')",
                     "rjust(14)", "center(15, '*')", "center(14)", "nope()", "strip(1)", "split('')"]:
            yield f"{text}.{call}"
        for name in ["title", "upper", "lower", "capitalize", "length", "trim", "reverse", "list", "tojson", "tojson(ensure_ascii=true)",
                     "indent(2)", "indent(2, true)", "indent('> ', blank=true)", "trim('x')", "first", "last", "wordcount is defined"]:
            yield f"{text}|{name}"
        yield f"[{text}]"
    for text in [r"'a\nb'", r"'tab\t'", r"'\\'", r"'it\'s'", r'"say \"hi\""', r"""'"\''""", r"'\x41\u00e9\U0001F600'", r"'\101'", r"'\q'", r"'\u200b\u00ad'",
                 r"'\x7f\x00\x1b'", r"'a' 'b'", "'ünï\U0001F44B'", r"'\u12'", "'open", r"'\ue000\u0378'"]:
        yield text
        yield f"[{text}]"
        yield f"{text}|tojson"
        yield f"{text}|tojson(ensure_ascii=True)"
        yield f"{text}|length"
    for call in ["'{}-{}'.format(1, 'a')", "'{1} {0}'.format('a', 'b')", "'{x}'.format(x=2.5)", "'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')",
                 "'{:05d} {:+d} {:,}'.format(42, 7, 1234567)", "'{:.2f} {:8.3f} {:e}'.format(3.14159, 2.5, 12345.678)", "'{{}}'.format()",
                 "'{:x} {:X} {:#x} {:b} {:o}'.format(255, 255, 255, 5, 8)", "'{:.1%}'.format(0.256)", "'{0[a]} {0[b]}'.format(d)", "'{!r}'.format('q')",
                 "'{}'.format()", "'{'.format(1)", "'{:d}'.format('x')", "'{:*^9.3}'.format('abcdef')", "'{:g} {:G}'.format(0.00001, 1e20)",
                 "'%s and %s' % ('a', 1)", "'%d%%' % 50", "'%5.2f|%-6s|%06d' % (3.14159, 'ab', 42)", "'%s' % [1]", "'%s' % missing", "'%(a)s' % d",
                 "'%x %X %o' % (255, 255, 8)", "'%s %s' % ('a',)", "'%s' % ('a', 'b')", "'%d' % 'x'", "'%r' % 'x'", "'%e' % 12.5", "'%+d % d' % (5, 5)",
                 "'%s is %d'|format('x', 3)", "'%(k)s'|format(k=1)", "'%i' % 3.9", "'%c' % 'x'", "'{:.3}'.format(2.0)", "'{:10}|'.format(5)",
                 "'{:10}|'.format('x')", "'{:_}'.format(1234567)", "'{:,.2f}'.format(1234567.891)"]:
        yield call


def containers():
    yield from ["d.get('a')", "d.get('z')", "d.get('z', 5)", "d.keys()", "d.values()", "d.items()", "d.keys()|list", "d.items()|list", "msg.items",
                "msg['items']", "msg.items()|list", "msg.role", "msg.zip", "msg.zip.zap", "missing.a", "missing['a']", "missing()", "d.b.c", "nums.foo", "d.a[0]",
                "d.keys() is iterable", "d.keys() is sequence", "'a' in d", "'z' in d", "1 in d", "[] in d", "2 in nums", "'2' in nums", "'H' in s", "1 in s",
                "'' in s", "'x' in missing", "nums.index(2)", "nums.index(9)", "nums.count(1)", "nums.append(1)", "nums.append is defined", "d.update({})",
                "d.pop('a')", "nums.sort()", "nums.copy()", "d.copy()", "d|length", "d.items()|length", "nested", "nested|tojson", "nested|tojson(indent=2)",
                "nested|tojson(indent=0)", "{'b': 1, 'a': [1, {'z': ()}]}|tojson(sort_keys=true)", "{1: 2, none: 3, true: 4, 1.5: 6}|tojson", "{'a': 1}|tojson(separators=(',', ':'))",
                "{1: 'x', 'k': none, (1, 2): [true]}", "{}", "[]", "()", "(1,)", "{'a': 1, 'a': 2}", "{[]: 1}", "missing|tojson", "range(3)|tojson", "d|tojson(indent=4)",
                "range(5)", "range(2, 5)|list", "range(10, 0, -3)|list", "range(0)|list", "range(1, 2, 0)", "range(200000)", "range(3)[1]", "range(9)[2:8:2]|list", "range(5)|length",
                "range('a')", "range(3)|sum", "3 in range(5)", "range(2.5)", "dict(a=1, b='x')", "dict([['a', 1]])", "dict(d, z=1)", "dict(1)", "namespace(a=1).a",
                "namespace(d).b", "namespace(a=1).b", "namespace(_a=1)", "nums + [4]", "nums + (4,)", "(1,) + (2,)", "nums * 2", "2 * 'ab'", "'ab' * -1", "nums == [3, 1, 2]",
                "(1,) == [1]", "1 == 1.0", "1 == true", "'1' == 1", "none == none", "missing == missing", "missing == none", "missing is none", "nested == nested", "d == {'a': 'x', 'b': 1, 'items_': [1]}",
                "[1, 2] < [1, 3]", "[1] < [1, 0]", "'a' < 'B'", "1 < 'a'", "none < 1", "1 < 2 < 3", "1 < 3 < 2", "1 == 1 in [1]", "d < d", "words|sort", "words|sort(reverse=true)",
                "words|sort(case_sensitive=true)", "people|sort(attribute='age')|map(attribute='name')|list", "people|sort(attribute='name,age')|map(attribute='name')|join(',')",
                "words|unique|list", "words|unique(true)|list", "words|map('upper')|list", "words|map('length')|list", "words|map('replace', 'p', 'P')|join('|')",
                "words|map('nope')|list", "words|map|list", "people|map(attribute='nick')|list", "people|map(attribute='nick', default='-')|list", "people|map(attribute='tags.0')|list", "nested|map(attribute=0)|list",
                "people|selectattr('nick', 'defined')|map(attribute='name')|list", "people|selectattr('age', 'gt', 28)|list|length", "people|selectattr('age', '>=', 30)|map(attribute='name')|first",
                "people|rejectattr('name', 'equalto', 'bob')|map(attribute='name')|list", "people|selectattr('tags')|list|count", "people|selectattr('name', 'in', ['Ann', 'Cy'])|list|length",
                "nums|select('odd')|list", "nums|reject('odd')|list", "[0, 1, '', 'a', none]|select|list", "[0, 1, '']|reject|list", "nums|select('gt', 1)|list", "nums|select('divisibleby', 3)|list",
                "nums|select('nope')|list", "[]|select('nope')|list", "nums|select('odd') is iterable", "nums|select('odd') is sequence", "nums|select('odd') is string", "(nums|select('gt', 9)) and 'truthy'",
                "nums|select('odd')|length", "nums|map('string')|first", "nums|map('string')|last", "nums|reverse|first", "nums|reverse|list", "d|reverse|list", "'abc'|reverse", "nums|first", "none_list|first", "none_list|last",
                "none_list|max", "none_list|min is undefined", "none_list|sum", "nums|sum(start=10)", "people|sum(attribute='age')", "words|sum", "words|max", "words|min", "people|max(attribute='age')", "[1, 'a']|max", "[1, 'a']|sort",
                "words|join", "words|join(', ')", "nums|join(1)", "people|join(', ', attribute='name')", "none|join", "5|join", "'abc'|join('-')", "d|join(',')", "d|items|list", "5|items|list", "d|dictsort", "d|dictsort(reverse=true)",
                "{'B': 1, 'a': 3, 'C': 2}|dictsort", "{'B': 1, 'a': 3, 'C': 2}|dictsort(true)", "{'B': 1, 'a': 3, 'C': 2}|dictsort(by='value')", "d|list", "5|list", "none|list", "s|list", "html|e", "html|escape", "5|e", "html|safe",
                "lines|indent", "lines|indent(2, first=true)", "lines|indent(2, blank=true)", "lines|indent(width=0)", "5|indent", "7|abs", "-7|abs", "(-7)|abs", "-2.5|abs", "'x'|abs", "s|replace('l', 'L', 2)", "s|replace(old='l', new='')", "5|replace('5', 'five')",
                "s|nope", "s is nope", "n is odd", "n is even", "f is odd", "'x' is odd", "n is divisibleby 7", "n is divisibleby(2)", "n is in [7]", "n is in(nums)", "n is eq 7", "n is equalto 8", "n is ne 7", "n is gt 3", "n is lt(3)", "s is lower", "'abc' is lower",
                "'ABC' is upper", "'' is upper", "n is sameas 7", "none is sameas none", "'upper' is filter", "'zip' is filter", "'odd' is test", "n is defined and n is odd", "n is not odd or no", "missing is defined or 'x'", "(n is odd) ~ '!'", "n is odd is even",
                "-n ** 2", "2 ** 3 ** 2", "-2|abs", "1 + 2 ~ 3", "1 ~ 2 + 3", "7 // 2 * 2", "2 + 3 * 4 - 6 / 3", "'a' if yes", "'a' if no", "('a' if no) is undefined", "1 if no else 2 if no else 3", "not yes == no", "not 1 in [2]", "yes and no or 'z'", "1 and 2", "0 or ''", "nums[0] + nums[-1]",
                "nums.0", "nums.9", "people.0.name", "people[0]['name'][0]", "s.upper().lower().title()", "s.upper", "words[0].upper()[1:]|lower", "(1, 2)[0]", "[1, 2, 3][::-1]", "[1, 2, 3][::0]", "[1,2,3]['a':]", "nums[1:][0]", "d['a':]", "{'a': {'b': {'c': 1}}}.a.b.c", "[[1, 2], [3]][0][1]",
                "strftime_now('%Y-%m-%d %H:%M:%S')", "strftime_now('%d %b %Y')", "strftime_now('%A, %B %d, %j %y %I %p %%')", "strftime_now()", "strftime_now('')", "raise_exception('no')", "raise_exception()", "9223372036854775807", "None", "True", "False", "none is none", "[true, false, none]",
                "1 +", "(1", "1)", "[1", "{'a'}", "{'a': }", "a b", "1 2", "|upper", "s|", "s.", "s[", "s[]", "f(", "'a' ~", "not", "is", "s is", "s is not", "1 if", "x.1.y", "lambda: 1", "@", "a ? b", "a & b", "s['a' 'b']", "nums[0, 1]", "d.__class__", "s.__class__", "d._x", "''.__class__.__mro__", "caller()", "loop", "self", "s(1)", "n()", "d()",
                "s.format_map(d) is string", "u|tojson(ensure_ascii=true)", "['a', 'b']|join(',')|upper|lower|length", "missing|default", "missing|d(1)|string|length", "''|default('x')", "''|default('x', true)", "''|default('x', boolean=true)", "none|default('x')", "missing.a|default('x')", "d.zz|default('x')", "missing|length", "missing|list", "missing|first", "missing|join", "missing|upper", "missing|int", "missing|sort", "missing|map('upper')|list", "missing|items|list", "missing|trim", "missing|replace('a', 'b')", "missing + 1", "missing ~ 1", "-missing", "missing < 1", "[missing]", "missing in [missing]", "missing|tojson is string"]


STATEMENTS = [
    "{% for x in nums %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ x }};{% endfor %}",
    "{% for x in nums %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in nums %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for x in nums if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in nums if x > 9 %}a{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}empty{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }} {% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{% if j == 1 %}{% break %}{% endif %}{% endfor %}|{{ loop.index }}{% endfor %}", "{% break %}", "{% continue %}",
    "{% for x in nums %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in nums|map('string') %}{{ loop.last }}{{ loop.length }}{{ x }} {% endfor %}", "{% for x in nums %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "{% for x in nums %}{{ loop.foo }}{% endfor %}",
    "{% set x = 1 %}{% for i in nums %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=1, found=false) %}{% for i in nums %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.found }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}{{ ns['a'] }}", "{% set d.a = 1 %}", "{% set q.a = 1 %}", "{% set ns = namespace() %}{% set ns._a = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2, 3] %}", "{% set (a, b) = (1, 2) %}{{ a + b }}", "{% set x = 1, 2 %}{{ x }}", "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x|length }}", "{% set x | upper | trim %} abc {% endset %}[{{ x }}]", "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set true = 1 %}", "{% set 1 = 1 %}", "{% set x %}", "{% set x = %}",
    "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% if no %}{% set x = 1 %}{% endif %}{{ x is defined }}", "{% if no %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b", "{% if nums|select('gt', 9) %}generator{% endif %}", "{% if yes %}", "{% endif %}", "{% if %}a{% endif %}", "{% else %}", "{% if yes %}{% endfor %}", "{% nope %}", "{% for x in nums %}",
    "{% macro m(a, b='B', c=n) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=1, a=2) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m(a, b=1, c) %}{% endmacro %}", "{% macro m(*a) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(3) }}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}", "{% macro m() %}{{ late }}{% endmacro %}{% set late = 2 %}{{ m() }}", "{% macro m() %}{% set inner = 1 %}{% endmacro %}{{ m() }}{{ inner is defined }}", "{% for i in nums %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %} x {% endmacro %}{{ m()|trim }}|{{ m() ~ 'y' }}|{{ m()|length }}", "{% macro a() %}A{% endmacro %}{% macro b() %}{{ a() }}B{% endmacro %}{{ b() }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{% endcall %}", "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b=5) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}", "{% call 5 %}{% endcall %}", "{{ m }}{% macro m() %}{% endmacro %}", "{% macro m() %}{% endmacro %}{{ m.name }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aaa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% with a = n, b = a %}{{ b is defined }}{% endwith %}", "{% generation %}x{% set z = 1 %}{{ z }}{% endgeneration %}{{ z is defined }}", "{% for i in nums %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}", "{% print 1, 2 %}", "{% print s %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}!", "{% raw -%}  a  {%- endraw %}!", "a\n  {% raw %}\n b {% endraw %}\nc", "{% raw %}abc", "{#- c -#} x {# y #} z", "a {# {{ x }} {% if %} #} b", "{# open", "a\n   {# c #}\n b", "a {#- c #} b", "a {# c -#}  b", "{{ '{{' }}{{ '%}' }}", "{{ {'a': {'b': 1}}.a.b }}", "{{ {'a': 1}}}", "{{ '}}' }}", "{ {x} } {", "{", "{%", "{{", "{{ }}", "{% %}", "%} }} #}", "$ {{ n }} $",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \n  b\n  {% endif %}  \nc\n\n", "a {% if yes %} b {% endif %} c", "a\n {%- if yes -%} \n b \n {%- endif -%} \n c", "a\n  {%+ if yes %}\n  b\n  {%+ endif +%}\n c", "  {{ n }}  \n  {{- n }} \n {{ n -}}  \n x", "\n\n{{ n }}\n\n", "x\r\ny\rz\n", "{% if yes %}\n\n\nx{% endif %}\n\n", "a\n\t {%- set q = 1 %}\n\t b", "  {% set q = 1 %}  {% set r = 2 %}\n  x", "x  {% set q = 1 %}\n  y", "{{ 'a\nb' }}\n", "\u00a0{%- if yes %}x{% endif -%}\u3000y", "{{ n }}\n", "{{ n }}\n\n", "\n",
    "{% set x = [] %}{% for i in nums %}{% set x = x + [i] %}{% endfor %}{{ x }}", "{% set ns = namespace(l=[]) %}{% for i in nums %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}", "{% set _ = nums.append(4) %}{{ nums }}", "{% set it = nums|map('string') %}{{ it|list }}{{ it|list }}", "{% set it = nums|map('string') %}{{ it|first }}{{ it|list }}", "{% set ns = namespace(a=1) %}{{ ns }}", "{% for i in range(3) %}{% set outer = loop %}{% for j in range(2) %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for m in people if m.age > 26 %}{{ m.name }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for x in nums recursive %}{% endfor %}x", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% do nums.append(1) %}", "{% set x = namespace(a=[1]) %}{{ x.a[0] }}", "{%- for m in people -%}{{ '<' ~ m['name'] ~ '>' }}{%- endfor -%}", "{% for i in nums: %}{{ i }}{% endfor %}", "{% if yes: %}a{% endif %}", "{{ n", "{{ n }", "{% if n }}", "{{ n %}", "{{ (n }}", "{{ n) }}",
    "{% set x = n if n > 5 else 0 %}{{ x }}", "{% set x = 'a' if no %}{{ x is defined }}[{{ x }}]", "{% for x in (1, 2), (3, 4) %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}", "{% if 1, 2 %}t{% endif %}", "{{ 1, 2 }}", "{{ 1, }}", "{% for x in nums if loop.index %}{% endfor %}", "{% set m = msg %}{% set m = dict(m, content='new') %}{{ m.content }}{{ msg.content }}", "{{ dict(**d)|length }}", "{{ [1, 2, 3]|join(*['-']) }}", "{{ s.replace(*['l', 'L']) }}", "{{ '{a}{b}'.format(**{'a': 1, 'b': 2}) }}", "{{ s.replace(**{'old': 1}) }}",
]


# What Python prints for these holds an address, is folded at compile time, or nobody's business.
UNSTABLE = ("msg.items", "s.upper", "[1,2,3]['a':]", "1.real", "(1.real)|tojson", "self")
# What jinja2 computes and the engine refuses: complex numbers, integers beyond 64 bits, and what no chat template uses.
REFUSED = ("big|int", "'%c' % 'x'", "wordcount", "format_map", " recursive ")


def snippet(template):
    result = outcome(template, VARIABLES)
    is_complex = re.fullmatch(r"\(.*j\)", result.get("o", ""))
    refused = is_complex or any(part in template for part in REFUSED)
    return {"t": template, "refused": True} if refused else {"t": template, **result}


def snippets():
    for expression in dict.fromkeys(expressions()):
        template = "{{ " + expression + " }}"
        if expression not in UNSTABLE:
            yield snippet(template)
    for template in STATEMENTS:
        yield snippet(template)


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city — now.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "City, e.g. Zürich"}, "unit": {"type": "string", "enum": ["C", "F"]},
                                         "days": {"type": "array", "items": {"type": "integer"}}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds <two> \"numbers\"", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1.5}}, "required": ["a", "b"]}}},
]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, identifier="call00001"):
    return {"type": "function", "id": identifier, "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": {"messages": [message("user", "Hello!")]},
    "system": {"messages": [message("system", "Be brief.\n"), message("user", "  What is 2+2?  ")]},
    "turns": {"messages": [message("user", "Hi"), message("assistant", "Hello."), message("user", "Bye"), message("assistant", "See you. ")]},
    "system_turns": {"messages": [message("system", "S"), message("user", "a"), message("assistant", "b"), message("user", "c")]},
    "unicode": {"messages": [message("system", "你好 <b>"), message("user", "Grüße 👨‍👩‍👧 \u0301 \"quotes\" 'n' \\ back\tslash"), message("assistant", "שלום مرحبا")]},
    "parts": {"messages": [message("user", [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": " what?"}]), message("assistant", [{"type": "text", "text": "A cat."}])]},
    "thinking": {"messages": [message("user", "2+2?"), message("assistant", "<think>\nadd them\n</think>\n\n4"), message("user", "3+3?")]},
    "reasoning": {"messages": [message("user", "2+2?"), message("assistant", "4", reasoning_content="I add."), message("user", "and?"), message("assistant", "5", reasoning="Hm.")]},
    "no_think": {"messages": [message("system", "Answer. /no_think"), message("user", "x")], "variables": {"enable_thinking": False}},
    "tools": {"messages": [message("user", "Weather?")], "variables": {"tools": TOOLS}},
    "tool_calls": {"messages": [message("system", "Use tools."), message("user", "Weather in Zürich and 1+2?"),
                                message("assistant", None, tool_calls=[call("get_weather", {"city": "Zürich", "days": [1, 2]}), call("add", {"a": 1, "b": 2.0}, "call00002")]),
                                message("tool", "{\"t\": 21.5}", tool_call_id="call00001", name="get_weather"), message("tool", "3", tool_call_id="call00002", name="add"),
                                message("assistant", "21.5 and 3"), message("user", "Thanks")], "variables": {"tools": TOOLS}},
    "tool_text": {"messages": [message("user", "go"), message("assistant", "Calling.", tool_calls=[call("add", "{\"a\": 1}")]), message("tool", {"sum": 1, "ok": True}, tool_call_id="call00001", name="add")],
                  "variables": {"tools": TOOLS[1:]}},
    "date": {"messages": [message("user", "Which day?")], "variables": {"date_string": "26 Jul 2024", "documents": [{"title": "T", "text": "Doc text"}]}},
    "bad_order": {"messages": [message("user", "a"), message("user", "b")]},
    "assistant_first": {"messages": [message("assistant", "a")]},
    "unknown_role": {"messages": [message("critic", "a")]},
    "no_content": {"messages": [{"role": "user"}]},
    "empty": {"messages": []},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def normalize(messages):
    """What transformers does to messages before the template sees them."""
    out = []
    for m in messages:
        m = {k: v for k, v in m.items() if v is not None}
        reasoning = next((m[k] for k in REASONING if m.get(k) is not None), None)
        if reasoning is not None:
            m = {"thinking": reasoning, **m, "reasoning_content": reasoning}
        out.append(m)
    return out


def cases(sources):
    for name, source in sources.items():
        for conversation, data in CONVERSATIONS.items():
            for prompt in (False, True):
                variables = {"tools": None, "documents": None, **TOKENS, **data.get("variables", {}),
                             "messages": normalize(data["messages"]), "add_generation_prompt": prompt}
                yield {"template": name, "conversation": conversation, "add_generation_prompt": prompt, **outcome(source, variables)}


def dump(entries):
    return "[\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries) + "\n]"


def conversations(sources):
    return ('{"clock": "%s", "tokens": %s, "conversations": %s,\n"cases": %s}\n' % (
        CLOCK.strftime("%Y-%m-%d %H:%M:%S"), json.dumps(TOKENS), json.dumps(CONVERSATIONS, ensure_ascii=False), dump(cases(sources))))


def main():
    if sys.argv[1:2] == ["--check"]:
        sys.stdout.write(conversations({name: pathlib.Path(name).read_text() for name in sys.argv[2:]}))
        return
    sources = {path.name: path.read_text() for path in sorted((FOLDER / "templates").glob("*.jinja"))}
    (FOLDER / "conversations.json").write_text(conversations(sources))
    (FOLDER / "snippets.json").write_text(
        '{"clock": "%s", "variables": %s,\n"snippets": %s}\n' % (CLOCK.strftime("%Y-%m-%d %H:%M:%S"), json.dumps(VARIABLES, ensure_ascii=False), dump(snippets())))


if __name__ == "__main__":
    main()
