"""Every message about rule text, with the malformed sample that provokes it: the table is the test."""
# ruff: noqa: E501 (the samples show lines as they are)

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headwater.protocol.events import EventType
from headwater.protocol.languages import Language, RuleTextError, Source, parse_rules

FIRE = """\
event Smoke(area: string, value: float?)
event Temp(area: string, value: float, count: int)
"""
ABC = """\
event A(id: int, v: float, s: string)
event B(id: int, v: float, s: string)
event C(id: int, flag: bool)
"""

SAMPLES = [
    (
        "unknown type in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoek()",
        (
            "r.tesla:3:20: unknown event type 'Smoek'",
            "    define Fire() from Smoek()",
            "                       ^ did you mean 'Smoke'?",
        ),
    ),
    (
        "unknown type in SASE",
        "sase",
        ABC + "SEQ(A a, Bee b, X x) WITHIN 5 s",
        (
            "r.sase:4:10: unknown event type 'Bee'",
            "    SEQ(A a, Bee b, X x) WITHIN 5 s",
            "             ^ event types: A, B, C",
            "r.sase:4:17: unknown event type 'X'",
            "    SEQ(A a, Bee b, X x) WITHIN 5 s",
            "                    ^ event types: A, B, C",
        ),
    ),
    (
        "unknown attribute in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoke(aera = 'x')",
        (
            "r.tesla:3:26: Smoke has no attribute 'aera'",
            "    define Fire() from Smoke(aera = 'x')",
            "                             ^ did you mean 'area'? Smoke has: area, value",
        ),
    ),
    (
        "unknown attribute of a role",
        "tesla",
        FIRE + "define Fire(a: string) from Smoke() where a = Smoke.place",
        (
            "r.tesla:3:53: Smoke has no attribute 'place'",
            "    define Fire(a: string) from Smoke() where a = Smoke.place",
            "                                                        ^ Smoke has: area, value",
        ),
    ),
    (
        "unknown attribute in SASE",
        "sase",
        ABC + "SEQ(A a, C c) WHERE c.flg = TRUE AND c.velocity > 3 WITHIN 5 s",
        (
            "r.sase:4:23: C has no attribute 'flg'",
            "    SEQ(A a, C c) WHERE c.flg = TRUE AND c.velocity > 3 WITHIN 5 s",
            "                          ^ did you mean 'flag'? C has: id, flag",
            "r.sase:4:40: C has no attribute 'velocity'",
            "    SEQ(A a, C c) WHERE c.flg = TRUE AND c.velocity > 3 WITHIN 5 s",
            "                                           ^ C has: id, flag",
        ),
    ),
    (
        "unknown attribute in SAME",
        "sase",
        ABC + "SEQ(A a, C c) WHERE SAME[v] WITHIN 5 s",
        (
            "r.sase:4:26: C has no attribute 'v'",
            "    SEQ(A a, C c) WHERE SAME[v] WITHIN 5 s",
            "                             ^ SAME needs it of every event; C has: id, flag",
        ),
    ),
    (
        "unbound parameter",
        "tesla",
        FIRE + "define Fire() from Smoke(area = $a) and last Temp(value > $b) within 5 min from Smoke",
        (
            "r.tesla:3:59: unbound parameter $b",
            "    define Fire() from Smoke(area = $a) and last Temp(value > $b) within 5 min from Smoke",
            "                                                              ^ bound so far: $a",
        ),
    ),
    (
        "parameter in SASE",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a.v = $x WITHIN 5 s",
        (
            "r.sase:4:27: unknown parameter $x",
            "    SEQ(A a, B b) WHERE a.v = $x WITHIN 5 s",
            "                              ^ SASE has none: name an attribute, as in a.v = b.v",
        ),
    ),
    (
        "parameter bound in a negation",
        "tesla",
        FIRE
        + "define Fire() from Smoke() and not Temp(area = $a) within 5 s from Smoke and last Temp(area = $a) as t within 5 s from Smoke",
        (
            "r.tesla:3:95: $a has no value here",
            "    … and not Temp(area = $a) within 5 s from Smoke and last Temp(area = $a) as t within 5 s from Smoke",
            "                                                                         ^ it is bound inside not Temp(..), whose events are not part of the match",
        ),
    ),
    (
        "unknown function",
        "sase",
        ABC + "SEQ(A a, B b) WHERE sqr(a.v) > 2 AND UPPERCASE(a.s) = 'X' WITHIN 5 s",
        (
            "r.sase:4:21: unknown function 'sqr'",
            "    SEQ(A a, B b) WHERE sqr(a.v) > 2 AND UPPERCASE(a.s) = 'X' WITHIN 5 s",
            "                        ^ did you mean 'sqrt'?",
            "r.sase:4:38: unknown function 'UPPERCASE'",
            "    SEQ(A a, B b) WHERE sqr(a.v) > 2 AND UPPERCASE(a.s) = 'X' WITHIN 5 s",
            "                                         ^ did you mean 'upper'?",
        ),
    ),
    (
        "unbound role in SASE",
        "sase",
        ABC + "SEQ(A a1, B b1) WHERE a2.v > 2 AND x.v = 3 WITHIN 5 s",
        (
            "r.sase:4:23: unbound name 'a2'",
            "    SEQ(A a1, B b1) WHERE a2.v > 2 AND x.v = 3 WITHIN 5 s",
            "                          ^ the pattern has: a1, b1",
            "r.sase:4:36: unbound name 'x'",
            "    SEQ(A a1, B b1) WHERE a2.v > 2 AND x.v = 3 WITHIN 5 s",
            "                                       ^ the pattern has: a1, b1",
        ),
    ),
    (
        "role that comes later in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoke(area = Temp.area) and last Temp() within 5 min from Smoke",
        (
            "r.tesla:3:33: unbound name 'Temp'",
            "    define Fire() from Smoke(area = Temp.area) and last Temp() within 5 min from Smoke",
            "                                    ^ it is introduced only later in the text",
        ),
    ),
    (
        "unbound name after from",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp() within 5 min from Smok",
        (
            "r.tesla:3:62: unbound name 'Smok'",
            "    define Fire() from Smoke() and last Temp() within 5 min from Smok",
            "                                                                 ^ did you mean 'Smoke'?",
        ),
    ),
    (
        "negated role in where",
        "tesla",
        FIRE + "define Fire(a: string) from Smoke() and not Temp() within 5 s from Smoke where a = Temp.area",
        (
            "r.tesla:3:84: unbound name 'Temp'",
            "    define Fire(a: string) from Smoke() and not Temp() within 5 s from Smoke where a = Temp.area",
            "                                                                                       ^ it is inside not Temp(..), so no event stands for it",
        ),
    ),
    (
        "bare name in where",
        "tesla",
        FIRE + "define Fire(a: string) from Smoke() where a = area",
        (
            "r.tesla:3:47: unbound name 'area': it is not clear whose attribute this is",
            "    define Fire(a: string) from Smoke() where a = area",
            "                                                  ^ write Smoke.area",
        ),
    ),
    (
        "bare name in SASE",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a.s = high WITHIN 5 s",
        (
            "r.sase:4:27: unbound name 'high'",
            "    SEQ(A a, B b) WHERE a.s = high WITHIN 5 s",
            "                              ^ write role.high, or 'high' for a string",
        ),
    ),
    (
        "a role is not a value",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a = 3 WITHIN 5 s",
        (
            "r.sase:4:21: 'a' is an event, not a value",
            "    SEQ(A a, B b) WHERE a = 3 WITHIN 5 s",
            "                        ^ write a.attribute",
        ),
    ),
    (
        "unbound name in FROM",
        "sase",
        ABC + "SEQ(A a, B b WITHIN 2 s FROM c) WITHIN 5 s",
        (
            "r.sase:4:30: unbound name 'c'",
            "    SEQ(A a, B b WITHIN 2 s FROM c) WITHIN 5 s",
            "                                 ^ the pattern has: a, b",
        ),
    ),
    (
        "wrong argument count",
        "sase",
        ABC + "SEQ(A a, B b) WHERE abs(a.v, 2) > 3 AND substring(a.s) = '' AND least() = 1 WITHIN 5 s",
        (
            "r.sase:4:21: abs takes 1 argument, not 2",
            "    SEQ(A a, B b) WHERE abs(a.v, 2) > 3 AND substring(a.s) = '' AND least() = 1 WITHIN 5 s",
            "                        ^ abs(number)",
            "r.sase:4:41: substring takes 2 or 3 arguments, not 1",
            "    SEQ(A a, B b) WHERE abs(a.v, 2) > 3 AND substring(a.s) = '' AND least() = 1 WITHIN 5 s",
            "                                            ^ substring(string, int, int?)",
            "r.sase:4:65: least takes at least 1 argument, not 0",
            "    SEQ(A a, B b) WHERE abs(a.v, 2) > 3 AND substring(a.s) = '' AND least() = 1 WITHIN 5 s",
            "                                                                    ^ least(any, ..)",
        ),
    ),
    (
        "wrong argument kind",
        "sase",
        ABC + "SEQ(A a, B b) WHERE sqrt(a.s) > 3 AND length(a.v) = 2 WITHIN 5 s",
        (
            "r.sase:4:26: sqrt needs a number here, but this is a string",
            "    SEQ(A a, B b) WHERE sqrt(a.s) > 3 AND length(a.v) = 2 WITHIN 5 s",
            "                             ^ sqrt(number)",
            "r.sase:4:46: length needs a string here, but this is a float",
            "    SEQ(A a, B b) WHERE sqrt(a.s) > 3 AND length(a.v) = 2 WITHIN 5 s",
            "                                                 ^ length(string)",
        ),
    ),
    (
        "string compared with number",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a.s > 3 WITHIN 5 s",
        (
            "r.sase:4:25: type mismatch: cannot compare a string with an int",
            "    SEQ(A a, B b) WHERE a.s > 3 WITHIN 5 s",
            "                            ^ a.s is a string, 3 is an int",
        ),
    ),
    (
        "string compared with number in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoke(area > 45)",
        (
            "r.tesla:3:31: type mismatch: cannot compare a string with an int",
            "    define Fire() from Smoke(area > 45)",
            "                                  ^ Smoke.area is a string, 45 is an int",
        ),
    ),
    (
        "arithmetic on strings",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a.s * 2 = 4 AND a.s + 1 = 'x' WITHIN 5 s",
        (
            "r.sase:4:25: type mismatch: cannot compute a string * an int",
            "    SEQ(A a, B b) WHERE a.s * 2 = 4 AND a.s + 1 = 'x' WITHIN 5 s",
            "                            ^ arithmetic needs numbers",
            "r.sase:4:41: type mismatch: cannot compute a string + an int",
            "    SEQ(A a, B b) WHERE a.s * 2 = 4 AND a.s + 1 = 'x' WITHIN 5 s",
            "                                            ^ write concat(..) to join values as text",
        ),
    ),
    (
        "condition that is not a condition",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a.v AND (a.v OR c.flag) WITHIN 5 s",
        (
            "r.sase:4:21: a condition must be true or false, but this is a float",
            "    SEQ(A a, B b) WHERE a.v AND (a.v OR c.flag) WITHIN 5 s",
            "                        ^ compare it",
            "r.sase:4:30: a condition must be true or false, but this is a float",
            "    SEQ(A a, B b) WHERE a.v AND (a.v OR c.flag) WITHIN 5 s",
            "                                 ^ compare it",
            "r.sase:4:37: unbound name 'c'",
            "    SEQ(A a, B b) WHERE a.v AND (a.v OR c.flag) WITHIN 5 s",
            "                                        ^ the pattern has: a, b",
        ),
    ),
    (
        "list of mixed kinds",
        "sase",
        ABC + "SEQ(A a, B b) WHERE a.id IN (1, 'two', 3) WITHIN 5 s",
        (
            "r.sase:4:33: type mismatch: cannot compare an int with a string",
            "    SEQ(A a, B b) WHERE a.id IN (1, 'two', 3) WITHIN 5 s",
            "                                    ^ a.id is an int, 'two' is a string",
        ),
    ),
    (
        "output of another kind",
        "tesla",
        FIRE + "define Fire(a: int) from Smoke() where a = Smoke.area",
        (
            "r.tesla:3:44: type mismatch: 'a' is an int, but this is a string",
            "    define Fire(a: int) from Smoke() where a = Smoke.area",
            "                                               ^ declare a: string, or convert the value",
        ),
    ),
    (
        "output of another kind in SASE",
        "sase",
        ABC + "SEQ(A a, B b) WITHIN 5 s RETURN X(n: int = a.v)",
        (
            "r.sase:4:44: type mismatch: 'n' is an int, but this is a float",
            "    SEQ(A a, B b) WITHIN 5 s RETURN X(n: int = a.v)",
            "                                               ^ write n: float, or convert the value",
        ),
    ),
    (
        "average of strings",
        "tesla",
        FIRE + "define Fire() from Smoke() and 3 < Avg(Temp().area within 5 s from Smoke)",
        (
            "r.tesla:3:47: type mismatch: avg needs numbers, but this is a string",
            "    define Fire() from Smoke() and 3 < Avg(Temp().area within 5 s from Smoke)",
            "                                                  ^ use count instead",
        ),
    ),
    (
        "aggregate without attribute",
        "tesla",
        FIRE + "define Fire() from Smoke() and 3 < Avg(Temp() within 5 s from Smoke)",
        (
            "r.tesla:3:36: Avg needs an attribute",
            "    define Fire() from Smoke() and 3 < Avg(Temp() within 5 s from Smoke)",
            "                                       ^ write Avg(Temp(..).attribute ..)",
        ),
    ),
    (
        "no regular expression",
        "sase",
        ABC + "SEQ(A a, B b) WHERE matches(a.s, '(x') WITHIN 5 s",
        (
            "r.sase:4:34: this is not a regular expression",
            "    SEQ(A a, B b) WHERE matches(a.s, '(x') WITHIN 5 s",
            "                                     ^ missing ), unterminated subpattern at position 0",
        ),
    ),
    (
        "unknown kind",
        "tesla",
        FIRE + "define Fire(a: txt) from Smoke() where a = Smoke.area",
        (
            "r.tesla:3:16: unknown kind 'txt'",
            "    define Fire(a: txt) from Smoke() where a = Smoke.area",
            "                   ^ write int, float, string, bool or any",
        ),
    ),
    (
        "window of nothing",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp() within 0 s from Smoke",
        (
            "r.tesla:3:51: a window must be longer than nothing",
            "    define Fire() from Smoke() and last Temp() within 0 s from Smoke",
            "                                                      ^ write a positive duration such as 5 min",
        ),
    ),
    (
        "negative window",
        "sase",
        "SEQ(A a, B b) WITHIN -5 s",
        (
            "r.sase:1:22: a window must be longer than nothing",
            "    SEQ(A a, B b) WITHIN -5 s",
            "                         ^ write a positive duration such as 5 min",
        ),
    ),
    (
        "count of nothing",
        "sase",
        "SEQ(A a, B b) WITHIN 0",
        (
            "r.sase:1:22: a window must count at least one event",
            "    SEQ(A a, B b) WITHIN 0",
            "                         ^ write a whole number from 1, or a unit of time",
        ),
    ),
    (
        "window without unit in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp() within 5 from Smoke",
        (
            "r.tesla:3:51: this window needs a unit of time",
            "    define Fire() from Smoke() and last Temp() within 5 from Smoke",
            "                                                      ^ write 5 s, or another of us, ms, min, h, d",
        ),
    ),
    (
        "window without unit in CED",
        "sase",
        "seq(A, B; 3)",
        (
            "r.sase:1:11: this window needs a unit of time",
            "    seq(A, B; 3)",
            "              ^ write 3 s, or another of us, ms, min, h, d",
        ),
    ),
    (
        "unknown unit",
        "sase",
        "SEQ(A a, B b) WITHIN 5 parsecs",
        (
            "r.sase:1:24: unknown unit 'parsecs'",
            "    SEQ(A a, B b) WITHIN 5 parsecs",
            "                           ^ write us, ms, s, min, h or d; k and M only for counts",
        ),
    ),
    (
        "unknown unit in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp() within 5 fortnights from Smoke",
        (
            "r.tesla:3:53: unknown unit 'fortnights'",
            "    define Fire() from Smoke() and last Temp() within 5 fortnights from Smoke",
            "                                                        ^ write us, ms, s, min, h or d; k and M only for counts",
        ),
    ),
    (
        "part of a microsecond",
        "sase",
        "SEQ(A a, B b) WITHIN 0.5 us",
        (
            "r.sase:1:22: 0.5 us is not a whole number of microseconds",
            "    SEQ(A a, B b) WITHIN 0.5 us",
            "                         ^",
        ),
    ),
    (
        "missing window",
        "sase",
        "SEQ(A a, B b)",
        (
            "r.sase:1:1: this SEQ has no window",
            "    SEQ(A a, B b)",
            "    ^ add WITHIN and a duration at the end of the rule",
        ),
    ),
    (
        "missing window of an inner operator",
        "sase",
        "OR(SEQ(A a, B b; 3 s), AND(C c, D d))",
        (
            "r.sase:1:24: this AND has no window",
            "    OR(SEQ(A a, B b; 3 s), AND(C c, D d))",
            "                           ^ add WITHIN and a duration at the end of the rule",
        ),
    ),
    (
        "inner window that counts",
        "sase",
        "SEQ(A a, AND(B b, C c) WITHIN 50) WITHIN 5 s",
        (
            "r.sase:1:31: only the outermost window can count events",
            "    SEQ(A a, AND(B b, C c) WITHIN 50) WITHIN 5 s",
            "                                  ^ write a duration, such as 50 s",
        ),
    ),
    (
        "window of a single event",
        "sase",
        "SEQ(A a, B b WITHIN 2 s) WITHIN 5 s",
        (
            "r.sase:1:21: this window needs an event to start from",
            "    SEQ(A a, B b WITHIN 2 s) WITHIN 5 s",
            "                        ^ add FROM and the name of another event",
        ),
    ),
    (
        "window of OR",
        "sase",
        "OR(A a, B b; 5 s)",
        (
            "r.sase:1:14: OR takes no window",
            "    OR(A a, B b; 5 s)",
            "                 ^ give it to the SEQ or AND inside or outside",
        ),
    ),
    (
        "duplicate event type",
        "tesla",
        FIRE + "event Smoke(area: string)\ndefine Fire() from Smoke()",
        (
            "r.tesla:3:7: event type 'Smoke' is declared twice",
            "    event Smoke(area: string)",
            "          ^ first declared in r.tesla, line 1",
        ),
    ),
    (
        "duplicate attribute of a type",
        "tesla",
        FIRE + "event Rain(a: int, a: string)\ndefine Fire() from Rain()",
        (
            "r.tesla:3:20: Rain has two attributes called 'a'",
            "    event Rain(a: int, a: string)",
            "                       ^ leave one out",
        ),
    ),
    (
        "duplicate attribute of a composite",
        "tesla",
        FIRE + "define Fire(a: string, a: string) from Smoke() where a = Smoke.area",
        (
            "r.tesla:3:24: Fire has two attributes called 'a'",
            "    define Fire(a: string, a: string) from Smoke() where a = Smoke.area",
            "                           ^ leave one out",
        ),
    ),
    (
        "duplicate value",
        "tesla",
        FIRE + "define Fire(a: string) from Smoke() where a = Smoke.area and a = 'x'",
        (
            "r.tesla:3:62: 'a' gets a value twice",
            "    define Fire(a: string) from Smoke() where a = Smoke.area and a = 'x'",
            "                                                                 ^ leave one out",
        ),
    ),
    (
        "missing value",
        "tesla",
        FIRE + "define Fire(a: string, b: int) from Smoke() where a = Smoke.area",
        (
            "r.tesla:3:24: 'b' gets no value",
            "    define Fire(a: string, b: int) from Smoke() where a = Smoke.area",
            "                           ^ add: where b = ..",
        ),
    ),
    (
        "value for no attribute",
        "tesla",
        FIRE + "define Fire(area: string) from Smoke() where aera = Smoke.area and area = 'x'",
        (
            "r.tesla:3:46: Fire is defined without an attribute 'aera'",
            "    define Fire(area: string) from Smoke() where aera = Smoke.area and area = 'x'",
            "                                                 ^ did you mean 'area'?",
        ),
    ),
    (
        "duplicate role in TESLA",
        "tesla",
        FIRE + "define Fire() from Temp() and last Temp() within 5 s from Temp",
        (
            "r.tesla:3:36: two events of this rule are called 'Temp'",
            "    define Fire() from Temp() and last Temp() within 5 s from Temp",
            "                                       ^ give one of them another name: Temp(..) as temp_2",
        ),
    ),
    (
        "duplicate role in SASE",
        "sase",
        "SEQ(A x, B x) WITHIN 5 s",
        (
            "r.sase:1:12: two parts of this pattern are called 'x'",
            "    SEQ(A x, B x) WITHIN 5 s",
            "               ^ give one of them another name",
        ),
    ),
    (
        "duplicate rule",
        "tesla",
        FIRE + "define Fire() from Smoke()\ndefine Fire() from Temp()",
        (
            "r.tesla:4:8: there is already a rule called 'Fire'",
            "    define Fire() from Temp()",
            "           ^ name it: Rule OtherName in front of define",
        ),
    ),
    (
        "duplicate rule in SASE",
        "sase",
        "Q: SEQ(A a, B b) WITHIN 5 s\nQ: SEQ(A a, C c) WITHIN 5 s",
        (
            "r.sase:2:1: there is already a rule called 'Q'",
            "    Q: SEQ(A a, C c) WITHIN 5 s",
            "    ^ choose another name",
        ),
    ),
    (
        "composite named like a source's type",
        "tesla",
        FIRE + "define Smoke() from Temp()",
        (
            "r.tesla:3:8: 'Smoke' is an event type of the sources already",
            "    define Smoke() from Temp()",
            "           ^ give the composite event another name",
        ),
    ),
    (
        "same composite, other attributes",
        "sase",
        "X: SEQ(A a, B b) WITHIN 5 s RETURN Z(v = a.v)\nY: SEQ(A a, B b) WITHIN 5 s RETURN Z(w = a.v)",
        (
            "r.sase:2:36: another rule defines 'Z' with other attributes",
            "    Y: SEQ(A a, B b) WITHIN 5 s RETURN Z(w = a.v)",
            "                                       ^ the other has: v",
        ),
    ),
    (
        "reserved attribute",
        "tesla",
        FIRE + "event Rain(ts: int)\ndefine Fire() from Rain()",
        (
            "r.tesla:3:12: every event has 'ts' already",
            "    event Rain(ts: int)",
            "               ^ choose another name",
        ),
    ),
    (
        "cyclic rules",
        "sase",
        "X: SEQ(A a, Z z) WITHIN 5 s\nY: SEQ(A a, X x) WITHIN 5 s\nZ: SEQ(Y y, A a) WITHIN 5 s",
        (
            "r.sase:1:13: these rules read each other in a circle: X -> Z -> Y -> X",
            "    X: SEQ(A a, Z z) WITHIN 5 s",
            "                ^ 'Z' emits Z",
        ),
    ),
    (
        "rule that reads itself",
        "sase",
        "X: SEQ(A a, X x) WITHIN 5 s",
        (
            "r.sase:1:13: the rule 'X' reads what it emits itself",
            "    X: SEQ(A a, X x) WITHIN 5 s",
            "                ^ 'X' emits X",
        ),
    ),
    (
        "duplicate clause",
        "sase",
        "SEQ(A a, B b) WITHIN 5 s WITHIN 6 s",
        (
            "r.sase:1:26: this rule has two WITHIN clauses",
            "    SEQ(A a, B b) WITHIN 5 s WITHIN 6 s",
            "                             ^ one is enough",
        ),
    ),
    (
        "truncated after from",
        "tesla",
        "define Fire() from ",
        (
            "r.tesla:1:19: the text ends too early",
            "    define Fire() from",
            "                      ^ expected a name",
        ),
    ),
    (
        "truncated in brackets",
        "tesla",
        "define Fire() from Smoke(area = 'x'",
        (
            "r.tesla:1:36: the text ends too early",
            "    define Fire() from Smoke(area = 'x'",
            "                                       ^ expected a comparison or operator, and, or, ')' or ','",
        ),
    ),
    (
        "truncated step",
        "tesla",
        "define Fire() from Smoke() and last Temp()\n",
        (
            "r.tesla:1:43: the text ends too early",
            "    define Fire() from Smoke() and last Temp()",
            "                                              ^ expected as or within",
        ),
    ),
    (
        "truncated after and",
        "tesla",
        "define Fire() from Smoke() and",
        (
            "r.tesla:1:31: the text ends too early",
            "    define Fire() from Smoke() and",
            "                                  ^ expected each, last, first, n-last, n-first, not or a value",
        ),
    ),
    (
        "truncated operator",
        "sase",
        "SEQ(A a, B",
        (
            "r.sase:1:11: the text ends too early",
            "    SEQ(A a, B",
            "              ^ expected a name, and, or, within, ')', '+', ',' or ';'",
        ),
    ),
    (
        "truncated condition",
        "sase",
        "SEQ(A a, B b)\nWHERE a.v >\n\n",
        (
            "r.sase:2:12: the text ends too early",
            "    WHERE a.v >",
            "               ^ expected a value",
        ),
    ),
    (
        "truncated declaration",
        "sase",
        "event A(id: int,",
        (
            "r.sase:1:17: the text ends too early",
            "    event A(id: int,",
            "                    ^ expected a name",
        ),
    ),
    (
        "truncated skip",
        "sase",
        "SEQ(A a, B b) WITHIN 5 s SKIP TILL",
        (
            "r.sase:1:35: the text ends too early",
            "    SEQ(A a, B b) WITHIN 5 s SKIP TILL",
            "                                      ^ expected any or next",
        ),
    ),
    (
        "unexpected word",
        "tesla",
        "define Fire() frm Smoke()",
        (
            "r.tesla:1:15: unexpected 'frm'",
            "    define Fire() frm Smoke()",
            "                  ^ expected from",
        ),
    ),
    (
        "unexpected bracket",
        "tesla",
        "define Fire()) from Smoke()",
        (
            "r.tesla:1:14: unexpected ')'",
            "    define Fire()) from Smoke()",
            "                 ^ expected from",
        ),
    ),
    (
        "unexpected operator",
        "sase",
        "SEQ(A a, B b) WHERE a.v > > 3 WITHIN 5 s",
        (
            "r.sase:1:27: unexpected '>'",
            "    SEQ(A a, B b) WHERE a.v > > 3 WITHIN 5 s",
            "                              ^ expected a value",
        ),
    ),
    (
        "unexpected character",
        "sase",
        "SEQ(A a, B b) WHERE REMOTE[a.t] >= 46.51°C WITHIN 5 s",
        (
            "r.sase:1:41: unexpected character '°'",
            "    SEQ(A a, B b) WHERE REMOTE[a.t] >= 46.51°C WITHIN 5 s",
            "                                            ^ expected a comparison or operator, a new rule, return, skip, where or within",
        ),
    ),
    (
        "time of day",
        "sase",
        "SEQ(A a, B b) WHERE a.time >= 6:00 WITHIN 5 s",
        (
            "r.sase:1:32: unexpected ':'",
            "    SEQ(A a, B b) WHERE a.time >= 6:00 WITHIN 5 s",
            "                                   ^ expected a comparison or operator, a new rule, return, skip, where or within",
        ),
    ),
    (
        "word at the end",
        "sase",
        "SEQ(A a, B b) WITHIN 5 s please",
        (
            "r.sase:1:26: unexpected 'please'",
            "    SEQ(A a, B b) WITHIN 5 s please",
            "                             ^ expected a rule such as SEQ(A a, B b) WITHIN 5 min",
        ),
    ),
    (
        "unterminated string",
        "sase",
        "SEQ(A a, B b) WHERE a.s = 'high AND a.v > 3\nWITHIN 5 s",
        (
            "r.sase:1:27: this string does not end",
            "    SEQ(A a, B b) WHERE a.s = 'high AND a.v > 3",
            "                              ^ expected another ' on the same line",
        ),
    ),
    (
        "parameter without name",
        "sase",
        "SEQ(A a, B b) WHERE a.s = $ WITHIN 5 s",
        (
            "r.sase:1:27: a parameter needs a name",
            "    SEQ(A a, B b) WHERE a.s = $ WITHIN 5 s",
            "                              ^ write $name",
        ),
    ),
    (
        "number too large",
        "sase",
        "SEQ(A a, B b) WHERE a.v = 99999999999999999999 OR a.v = 1e999 WITHIN 5 s",
        (
            "r.sase:1:27: 99999999999999999999 does not fit into 64 bits",
            "    SEQ(A a, B b) WHERE a.v = 99999999999999999999 OR a.v = 1e999 WITHIN 5 s",
            "                              ^",
        ),
    ),
    (
        "exponent too large",
        "sase",
        "SEQ(A a, B b) WHERE a.v = 1e99999999999999999999 WITHIN 5 s",
        (
            "r.sase:1:27: 1e99999999999999999999 is too large for a number",
            "    SEQ(A a, B b) WHERE a.v = 1e99999999999999999999 WITHIN 5 s",
            "                              ^",
        ),
    ),
    (
        "empty text",
        "sase",
        "",
        (
            "r.sase:1:1: there is no rule in this text",
            "    ",
            "    ^ expected a rule such as: Fire: SEQ(Temp t, Smoke s) WITHIN 5 min",
        ),
    ),
    (
        "only comments",
        "tesla",
        "# nothing here\n-- nor here",
        (
            "r.tesla:1:1: there is no rule in this text",
            "    # nothing here",
            "    ^ expected a rule such as: define Fire() from Smoke() and last Temp() within 5 min from Smoke",
        ),
    ),
    (
        "prose",
        "sase",
        "Please tell me about fires",
        (
            "r.sase:1:1: unexpected 'Please'",
            "    Please tell me about fires",
            "    ^ expected a rule such as SEQ(A a, B b) WITHIN 5 min",
        ),
    ),
    (
        "tabs",
        "sase",
        "SEQ(A a,\t\tB b) WHERE\ta.v >\t> 3 WITHIN 5 s",
        (
            "r.sase:1:28: unexpected '>'",
            "    SEQ(A a,  B b) WHERE a.v > > 3 WITHIN 5 s",
            "                               ^ expected a value",
        ),
    ),
    (
        "long line",
        "sase",
        "SEQ(A a, B b) WHERE "
        + " AND ".join(f"a.v{i} = {i}" for i in range(40))
        + " AND a.x > > 3 AND "
        + " AND ".join(f"a.v{i} = {i}" for i in range(40))
        + " WITHIN 5 s",
        (
            "r.sase:1:607: unexpected '>'",
            "    …v37 = 37 AND a.v38 = 38 AND a.v39 = 39 AND a.x > > 3 AND a.v0 = 0 AND a.v1 = 1 AND a.v2 = 2 AND a.…",
            "                                                      ^ expected a value",
        ),
    ),
    (
        "windows line ends",
        "sase",
        "SEQ(A a, B b)\r\nWHERE a.v > > 3\r\nWITHIN 5 s\r\n",
        (
            "r.sase:2:13: unexpected '>'",
            "    WHERE a.v > > 3",
            "                ^ expected a value",
        ),
    ),
    (
        "bytes that are not UTF-8",
        "sase",
        b"SEQ(A a, B b)\nWHERE a.s = 'caf\xe9'\nWITHIN 5 s",
        (
            "r.sase:2:17: byte 0xe9 is not UTF-8",
            "    WHERE a.s = 'caf�'",
            "                    ^ save the file as UTF-8",
        ),
    ),
    (
        "negation inside OR",
        "sase",
        "SEQ(A a, OR(B b, SEQ(C c, !D d))) WITHIN 5 s",
        (
            "r.sase:1:27: a negation cannot stand inside OR",
            "    SEQ(A a, OR(B b, SEQ(C c, !D d))) WITHIN 5 s",
            "                              ^ write one rule for each alternative",
        ),
    ),
    (
        "pattern without positive part",
        "sase",
        "SEQ(!A a, !B b) WITHIN 5 s",
        (
            "r.sase:1:1: this pattern has no positive part",
            "    SEQ(!A a, !B b) WITHIN 5 s",
            "    ^ a match needs at least one event that is there",
        ),
    ),
    (
        "operator without positive part",
        "sase",
        "SEQ(A a, AND(!B b)) WITHIN 5 s",
        (
            "r.sase:1:10: this part of the pattern has no positive part",
            "    SEQ(A a, AND(!B b)) WITHIN 5 s",
            "             ^ move its negations into the operator around",
        ),
    ),
    (
        "double negation",
        "sase",
        "SEQ(A a, !!B b) WITHIN 5 s",
        (
            "r.sase:1:11: a negation cannot stand inside another negation",
            "    SEQ(A a, !!B b) WITHIN 5 s",
            "              ^ leave both out",
        ),
    ),
    (
        "negation in negation",
        "sase",
        "SEQ(A a, !SEQ(B b, !C c, D d), E e) WITHIN 5 s",
        (
            "r.sase:1:20: a negation cannot stand inside another negation",
            "    SEQ(A a, !SEQ(B b, !C c, D d), E e) WITHIN 5 s",
            "                       ^ write it as a rule of its own and negate that",
        ),
    ),
    (
        "repetition in negation",
        "sase",
        "SEQ(A a, !SEQ(B b, C+ c[]), E e) WITHIN 5 s",
        (
            "r.sase:1:20: a repetition cannot stand inside a negation",
            "    SEQ(A a, !SEQ(B b, C+ c[]), E e) WITHIN 5 s",
            "                       ^ one event is enough: leave '+' out",
        ),
    ),
    (
        "negated repetition",
        "sase",
        "SEQ(A a, !B+ b[], E e) WITHIN 5 s",
        (
            "r.sase:1:10: a repetition cannot be negated",
            "    SEQ(A a, !B+ b[], E e) WITHIN 5 s",
            "             ^ one event is enough: leave '+' out",
        ),
    ),
    (
        "repetition of an operator",
        "sase",
        "SEQ(A a, (AND(B b, C c))+) WITHIN 5 s",
        (
            "r.sase:1:11: only plain events can be repeated",
            "    SEQ(A a, (AND(B b, C c))+) WITHIN 5 s",
            "              ^ write B+ b[] or a group such as (A a, B b)+",
        ),
    ),
    (
        "KL of an operator",
        "sase",
        "SEQ(A, KL(SEQ(B, C))) WITHIN 5 s",
        (
            "r.sase:1:8: KL repeats a single event",
            "    SEQ(A, KL(SEQ(B, C))) WITHIN 5 s",
            "           ^ write KL(B) or B+ b[]",
        ),
    ),
    (
        "NSEQ of two",
        "sase",
        "NSEQ(A, B) WITHIN 5 s",
        (
            "r.sase:1:1: NSEQ takes 3 parts, not 2",
            "    NSEQ(A, B) WITHIN 5 s",
            "    ^ NSEQ(a, b, c): no b between a and c",
        ),
    ),
    (
        "limit of a group",
        "sase",
        "SEQ(A a, (B b, C c)+ LIMIT 3) WITHIN 5 s",
        (
            "r.sase:1:28: LIMIT works for a single repeated event, not for a group",
            "    SEQ(A a, (B b, C c)+ LIMIT 3) WITHIN 5 s",
            "                               ^ leave it out",
        ),
    ),
    (
        "limit of nothing",
        "sase",
        "SEQ(A a, B+ b[] LIMIT 0) WITHIN 5 s",
        (
            "r.sase:1:23: LIMIT must be a whole number from 1",
            "    SEQ(A a, B+ b[] LIMIT 0) WITHIN 5 s",
            "                          ^ more candidates than this give no match",
        ),
    ),
    (
        "limit of a single event",
        "sase",
        "SEQ(A a, B b LIMIT 3) WITHIN 5 s",
        (
            "r.sase:1:20: LIMIT needs a repeated event",
            "    SEQ(A a, B b LIMIT 3) WITHIN 5 s",
            "                       ^ write B+ b[] LIMIT ..",
        ),
    ),
    (
        "brackets without plus",
        "sase",
        "SEQ(A a, B b[]) WITHIN 5 s",
        (
            "r.sase:1:10: b[] is not repeated",
            "    SEQ(A a, B b[]) WITHIN 5 s",
            "             ^ write B+ b[]",
        ),
    ),
    (
        "several parts in brackets",
        "sase",
        "SEQ(A a, (B b, C c)) WITHIN 5 s",
        (
            "r.sase:1:10: these brackets hold several parts",
            "    SEQ(A a, (B b, C c)) WITHIN 5 s",
            "             ^ write SEQ(..), or (..)+ to repeat them",
        ),
    ),
    (
        "conjunct over two negations",
        "sase",
        "SEQ(A a, !B b, C c, !D d) WHERE b.v = d.v WITHIN 5 s",
        (
            "r.sase:1:33: this condition compares events of two different negations",
            "    SEQ(A a, !B b, C c, !D d) WHERE b.v = d.v WITHIN 5 s",
            "                                    ^ neither of them is there to compare with the other",
        ),
    ),
    (
        "elements of two repetitions",
        "sase",
        "SEQ(A+ a[], B+ b[]) WHERE a[i].v = b[i].v WITHIN 5 s",
        (
            "r.sase:1:27: this condition names elements of two repetitions",
            "    SEQ(A+ a[], B+ b[]) WHERE a[i].v = b[i].v WITHIN 5 s",
            "                              ^ name b[first], b[last] or an aggregate of one of them",
        ),
    ),
    (
        "index of a single event",
        "sase",
        "SEQ(A a, B+ b[]) WHERE a[i-1].v < a[i].v WITHIN 5 s",
        (
            "r.sase:1:24: 'a' is a single event and has no elements",
            "    SEQ(A a, B+ b[]) WHERE a[i-1].v < a[i].v WITHIN 5 s",
            "                           ^ write a.v",
            "r.sase:1:35: 'a' is a single event and has no elements",
            "    SEQ(A a, B+ b[]) WHERE a[i-1].v < a[i].v WITHIN 5 s",
            "                                      ^ write a.v",
        ),
    ),
    (
        "strange index",
        "sase",
        "SEQ(A a, B+ b[]) WHERE b[7].v < 3 WITHIN 5 s",
        (
            "r.sase:1:26: this element cannot be named",
            "    SEQ(A a, B+ b[]) WHERE b[7].v < 3 WITHIN 5 s",
            "                             ^ write [i], [i-1], [1], [first], [last] or []",
        ),
    ),
    (
        "aggregate of a single event",
        "sase",
        "SEQ(A a, B+ b[]) WHERE avg(a.v) > 3 AND max(b[].v, 3) > 2 AND sum(b[]) > 1 WITHIN 5 s",
        (
            "r.sase:1:28: 'a' is a single event, so there is nothing to aggregate",
            "    SEQ(A a, B+ b[]) WHERE avg(a.v) > 3 AND max(b[].v, 3) > 2 AND sum(b[]) > 1 WITHIN 5 s",
            "                               ^ repeat it with '+'",
            "r.sase:1:41: max takes 1 argument, not 2",
            "    SEQ(A a, B+ b[]) WHERE avg(a.v) > 3 AND max(b[].v, 3) > 2 AND sum(b[]) > 1 WITHIN 5 s",
            "                                            ^ greatest(..) compares several values",
            "r.sase:1:67: sum needs an attribute",
            "    SEQ(A a, B+ b[]) WHERE avg(a.v) > 3 AND max(b[].v, 3) > 2 AND sum(b[]) > 1 WITHIN 5 s",
            "                                                                      ^ write sum(b[].attribute)",
        ),
    ),
    (
        "skip till next with AND",
        "sase",
        "AND(A a, B b) WITHIN 5 s SKIP TILL NEXT MATCH",
        (
            "r.sase:1:1: SKIP TILL NEXT MATCH needs an order, which AND does not give",
            "    AND(A a, B b) WITHIN 5 s SKIP TILL NEXT MATCH",
            "    ^ use SKIP TILL ANY MATCH",
        ),
    ),
    (
        "skip till next with a group",
        "sase",
        "SEQ(A a, (B b, C c)+) WITHIN 5 s SKIP TILL NEXT MATCH",
        (
            "r.sase:1:10: SKIP TILL NEXT MATCH cannot repeat a group",
            "    SEQ(A a, (B b, C c)+) WITHIN 5 s SKIP TILL NEXT MATCH",
            "             ^ use SKIP TILL ANY MATCH",
        ),
    ),
    (
        "negated role in RETURN",
        "sase",
        "SEQ(A a, !B b, C c) WITHIN 5 s RETURN X(v = b.v)",
        (
            "r.sase:1:45: 'b' has no value here",
            "    SEQ(A a, !B b, C c) WITHIN 5 s RETURN X(v = b.v)",
            "                                                ^ it is negated, so no event stands for it",
        ),
    ),
    (
        "repeated role in RETURN",
        "sase",
        "SEQ(A a, B+ b[]) WITHIN 5 s RETURN X(v = b.v)",
        (
            "r.sase:1:42: 'b' stands for several events here",
            "    SEQ(A a, B+ b[]) WITHIN 5 s RETURN X(v = b.v)",
            "                                             ^ write b[first].v, b[last].v or an aggregate",
        ),
    ),
    (
        "SAME inside an expression",
        "sase",
        "SEQ(A a, B b) WHERE SAME[id] OR a.v = 3 WITHIN 5 s",
        (
            "r.sase:1:21: SAME stands only for itself",
            "    SEQ(A a, B b) WHERE SAME[id] OR a.v = 3 WITHIN 5 s",
            "                        ^ join it to other conditions with AND at the outermost level",
        ),
    ),
    (
        "SAME with a role",
        "sase",
        "SEQ(A a, B b) WHERE SAME[a.id] WITHIN 5 s",
        (
            "r.sase:1:26: SAME takes the attribute alone",
            "    SEQ(A a, B b) WHERE SAME[a.id] WITHIN 5 s",
            "                             ^ write SAME[id]",
        ),
    ),
    (
        "too many alternatives",
        "sase",
        "SEQ(" + ", ".join("OR(A, B)" for _ in range(9)) + ") WITHIN 5 s",
        (
            "r.sase:1:1: the ORs of this pattern combine in more than 256 ways",
            "    SEQ(OR(A, B), OR(A, B), OR(A, B), OR(A, B), OR(A, B), OR(A, B), OR(A, B), OR(A, B), OR(A, B)) WITH…",
            "    ^ split it into several rules",
        ),
    ),
    (
        "none chosen",
        "tesla",
        FIRE + "define Fire() from Smoke() and 0-last Temp() within 5 s from Smoke",
        (
            "r.tesla:3:32: 0-last chooses nothing",
            "    define Fire() from Smoke() and 0-last Temp() within 5 s from Smoke",
            "                                   ^ write a number from 1, as in 3-last",
        ),
    ),
    (
        "between an event and itself",
        "tesla",
        FIRE + "define Fire() from Smoke() and not Temp() between Smoke and Smoke",
        (
            "r.tesla:3:61: nothing lies between an event and itself",
            "    define Fire() from Smoke() and not Temp() between Smoke and Smoke",
            "                                                                ^ name two different events",
        ),
    ),
    (
        "measured from itself",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp() within 5 s from Temp",
        (
            "r.tesla:3:60: 'Temp' cannot be measured from itself",
            "    define Fire() from Smoke() and last Temp() within 5 s from Temp",
            "                                                               ^ name an earlier event",
        ),
    ),
    (
        "condition of its own on an event",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp() within 5 s from Smoke and Temp.value > 45",
        (
            "r.tesla:3:70: a condition of its own must be about an aggregate",
            "    define Fire() from Smoke() and last Temp() within 5 s from Smoke and Temp.value > 45",
            "                                                                         ^ put a condition on an event into the brackets of that event",
        ),
    ),
    (
        "condition that does not concern the event",
        "tesla",
        FIRE + "define Fire() from Smoke() and last Temp(Smoke.value > 3) within 5 s from Smoke",
        (
            "r.tesla:3:42: this condition says nothing about Temp",
            "    define Fire() from Smoke() and last Temp(Smoke.value > 3) within 5 s from Smoke",
            "                                             ^ conditions in the brackets of Temp(..) must name one of its attributes",
        ),
    ),
    (
        "aggregate in brackets",
        "tesla",
        FIRE
        + "define Fire() from Smoke() and last Temp(value > Avg(Temp().value within 5 s from Smoke)) within 5 s from Smoke",
        (
            "r.tesla:3:50: an aggregate cannot stand inside the brackets of an event",
            "    define Fire() from Smoke() and last Temp(value > Avg(Temp().value within 5 s from Smoke)) within 5…",
            "                                                     ^ bind it before, as in: and $x = Avg(..), and write $x here",
        ),
    ),
    (
        "aggregate that is not used",
        "tesla",
        FIRE + "define Fire() from Smoke() and Count(Temp() within 5 s from Smoke)",
        (
            "r.tesla:3:32: the value of this aggregate is not used",
            "    define Fire() from Smoke() and Count(Temp() within 5 s from Smoke)",
            "                                   ^ compare it, or bind it: $x = Count",
        ),
    ),
    (
        "SAME in TESLA",
        "tesla",
        FIRE + "define Fire() from Smoke(SAME[area])",
        (
            "r.tesla:3:26: TESLA has no SAME",
            "    define Fire() from Smoke(SAME[area])",
            "                             ^ bind a $parameter in one event and use it in the others",
        ),
    ),
    (
        "several mistakes",
        "tesla",
        FIRE
        + "define Fire(a: string) from Smoek(area = $a) and last Temp(valu > 3) within 0 s from Smoek where a = $b",
        (
            "r.tesla:3:29: unknown event type 'Smoek'",
            "    define Fire(a: string) from Smoek(area = $a) and last Temp(valu > 3) within 0 s from Smoek where a…",
            "                                ^ did you mean 'Smoke'?",
            "r.tesla:3:60: Temp has no attribute 'valu'",
            "    …e Fire(a: string) from Smoek(area = $a) and last Temp(valu > 3) within 0 s from Smoek where a = $b",
            "                                                           ^ did you mean 'value'? Temp has: area, value, count",
            "r.tesla:3:77: a window must be longer than nothing",
            "    …e Fire(a: string) from Smoek(area = $a) and last Temp(valu > 3) within 0 s from Smoek where a = $b",
            "                                                                            ^ write a positive duration such as 5 min",
            "r.tesla:3:102: unbound parameter $b",
            "    …e Fire(a: string) from Smoek(area = $a) and last Temp(valu > 3) within 0 s from Smoek where a = $b",
            "                                                                                                     ^ bound so far: $a",
        ),
    ),
    (
        "deep brackets",
        "sase",
        "SEQ(A a, B b) WHERE " + "(" * 1000 + "a.v = 1" + ")" * 1000 + " WITHIN 5 s",
        (
            "r.sase:1:121: this is nested more than 100 levels deep",
            "    …((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((…",
            "                                                      ^ write it flatter, or as several rules",
        ),
    ),
    (
        "deep operators",
        "sase",
        "SEQ(" * 1000 + "A a" + ")" * 1000 + " WITHIN 5 s",
        (
            "r.sase:1:404: this is nested more than 100 levels deep",
            "    …Q(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(SEQ(…",
            "                                                      ^ write it flatter, or as several rules",
        ),
    ),
    (
        "deep negation",
        "sase",
        "SEQ(A a, B b) WHERE " + "NOT " * 1000 + "a.v = 1 WITHIN 5 s",
        (
            "r.sase:1:3625: this is nested more than 100 levels deep",
            "    … NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT NOT N…",
            "                                                      ^ write it flatter, or as several rules",
        ),
    ),
    (
        "long sum",
        "sase",
        "SEQ(A a, B b) WHERE " + "a.v + " * 1000 + "a.v = 1 WITHIN 5 s",
        (
            "r.sase:1:619: this is nested more than 100 levels deep",
            "    … + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v + a.v +…",
            "                                                      ^ write it flatter, or as several rules",
        ),
    ),
    (
        "SASE in a TESLA file",
        "tesla",
        "Q: SEQ(A a, B b) WITHIN 5 s",
        (
            "r.tesla:1:4: this is SASE, in a file of TESLA rules",
            "    Q: SEQ(A a, B b) WITHIN 5 s",
            "       ^ name the file .sase, or write define Name() from ..",
        ),
    ),
    (
        "original SASE in a TESLA file",
        "tesla",
        "PATTERN SEQ(A a, B b) WITHIN 5 s",
        (
            "r.tesla:1:1: this is SASE, in a file of TESLA rules",
            "    PATTERN SEQ(A a, B b) WITHIN 5 s",
            "    ^ name the file .sase, or write define Name() from ..",
        ),
    ),
    (
        "TESLA in a SASE file",
        "sase",
        "define Fire(area: string) from Smoke()",
        (
            "r.sase:1:1: this is TESLA, in a file of SASE rules",
            "    define Fire(area: string) from Smoke()",
            "    ^ name the file .tesla, or write SEQ(A a, B b)",
        ),
    ),
    (
        "PATTERN of original SASE",
        "sase",
        "PATTERN SEQ(A a, B b) WITHIN 5 s",
        (
            "r.sase:1:1: unexpected 'PATTERN'",
            "    PATTERN SEQ(A a, B b) WITHIN 5 s",
            "    ^ leave PATTERN out: a rule begins with SEQ(A a, B b)",
        ),
    ),
    (
        "EVENT of original SASE",
        "sase",
        "EVENT SEQ(A a, B b) WITHIN 5 s",
        (
            "r.sase:1:1: EVENT declares an event type, as in event Temp(value: float)",
            "    EVENT SEQ(A a, B b) WITHIN 5 s",
            "    ^ leave EVENT out: a rule begins with SEQ(A a, B b)",
        ),
    ),
    (
        "strategy of original SASE",
        "sase",
        "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { a.v > 3 } WITHIN 5 s",
        (
            "r.sase:1:48: unexpected character '{'",
            "    SEQ(A a, B b) WHERE skip_till_next_match(a, b) { a.v > 3 } WITHIN 5 s",
            "                                                   ^ write conditions without braces, and SKIP TILL ANY MATCH or SKIP TILL NEXT MATCH after WITHIN",
        ),
    ),
    (
        "C's and",
        "sase",
        "SEQ(A a, B b) WHERE a.v > 3 && b.v > 3 WITHIN 5 s",
        (
            "r.sase:1:29: unexpected character '&'",
            "    SEQ(A a, B b) WHERE a.v > 3 && b.v > 3 WITHIN 5 s",
            "                                ^ write AND",
        ),
    ),
    (
        "C's or",
        "tesla",
        "define X() from A(v > 3 || v < 1)",
        (
            "r.tesla:1:25: unexpected character '|'",
            "    define X() from A(v > 3 || v < 1)",
            "                            ^ write OR",
        ),
    ),
    (
        "typographic quotes",
        "tesla",
        "define X() from A(s = \u2018x\u2019)",
        (
            "r.tesla:1:23: unexpected character '\u2018'",
            "    define X() from A(s = \u2018x\u2019)",
            "                          ^ write strings in ' or \"",
        ),
    ),
    (
        "SELECT of SQL",
        "sase",
        "SELECT a.v FROM A a WHERE a.v > 5",
        (
            "r.sase:1:1: unexpected 'SELECT'",
            "    SELECT a.v FROM A a WHERE a.v > 5",
            "    ^ there is no SELECT; begin with SEQ(A a, B b), and after WITHIN write RETURN Name(attribute = a.v)",
        ),
    ),
    (
        "SELECT of SQL in TESLA",
        "tesla",
        "select X from Smoke()",
        (
            "r.tesla:1:1: unexpected 'select'",
            "    select X from Smoke()",
            "    ^ there is no SELECT; write define Name(attribute: kind) from .. where attribute = A.v",
        ),
    ),
    (
        "GROUP BY of SQL",
        "sase",
        "SEQ(A a, B b) WHERE a.v > 5 GROUP BY a.id WITHIN 5 s",
        (
            "r.sase:1:29: unexpected 'GROUP'",
            "    SEQ(A a, B b) WHERE a.v > 5 GROUP BY a.id WITHIN 5 s",
            "                                ^ there is no GROUP BY; SAME[area] in WHERE keeps to events that agree on area, and count(b[]) or avg(b[].v) compute over a repetition B+ b[]",
        ),
    ),
    (
        "GROUP BY of SQL in TESLA",
        "tesla",
        "define X() from A() and last B() within 5 s from A group by id",
        (
            "r.tesla:1:52: unexpected 'group'",
            "    define X() from A() and last B() within 5 s from A group by id",
            "                                                       ^ there is no GROUP BY; write Count(B(area = A.area) within 5 min from A), which counts for each A",
        ),
    ),
    (
        "no instead of !",
        "sase",
        "SEQ(A a, no C(), B b) WITHIN 5 s",
        (
            "r.sase:1:10: unexpected 'no'",
            "    SEQ(A a, no C(), B b) WITHIN 5 s",
            "             ^ write !C r for an event that must not happen",
        ),
    ),
    (
        "no instead of not",
        "tesla",
        "define X() from A() and no C() within 5 s from A",
        (
            "r.tesla:1:25: unexpected 'no'",
            "    define X() from A() and no C() within 5 s from A",
            "                            ^ write not C() within 5 min from Smoke, or not C() between A and B",
        ),
    ),
    (
        "no as a type",
        "sase",
        ABC + "SEQ(A a, no C, B b) WITHIN 5 s",
        (
            "r.sase:4:10: unknown event type 'no'",
            "    SEQ(A a, no C, B b) WITHIN 5 s",
            "             ^ write !Rain r for an event that must not happen",
        ),
    ),
    (
        "without",
        "tesla",
        "define X() from A() and without C() within 5 s from A",
        (
            "r.tesla:1:25: unexpected 'without'",
            "    define X() from A() and without C() within 5 s from A",
            "                            ^ write not C() within 5 min from Smoke, or not C() between A and B",
        ),
    ),
    (
        "any instead of each",
        "tesla",
        "define X() from A() and any B() within 5 s from A",
        (
            "r.tesla:1:25: unexpected 'any'",
            "    define X() from A() and any B() within 5 s from A",
            "                            ^ write each",
        ),
    ),
    (
        "HAVING of SQL",
        "sase",
        "SEQ(A a, B+ b[]) WITHIN 5 s HAVING count(b[]) > 5",
        (
            "r.sase:1:29: unexpected 'HAVING'",
            "    SEQ(A a, B+ b[]) WITHIN 5 s HAVING count(b[]) > 5",
            "                                ^ there is no HAVING; write the condition in WHERE, as in WHERE count(b[]) > 5",
        ),
    ),
    (
        "ORDER BY of SQL",
        "sase",
        "SEQ(A a, B b) WITHIN 5 s ORDER BY a.ts",
        (
            "r.sase:1:26: unexpected 'ORDER'",
            "    SEQ(A a, B b) WITHIN 5 s ORDER BY a.ts",
            "                             ^ there is no ORDER BY; composite events come in the order of time",
        ),
    ),
    (
        "PARTITION BY of Siddhi",
        "sase",
        "SEQ(A a, B b) PARTITION BY a.id WITHIN 5 s",
        (
            "r.sase:1:15: unexpected 'PARTITION'",
            "    SEQ(A a, B b) PARTITION BY a.id WITHIN 5 s",
            "                  ^ there is no PARTITION BY; SAME[area] in WHERE keeps to events that agree on area",
        ),
    ),
    (
        "arrows of Esper",
        "sase",
        "A -> B WITHIN 5 s",
        (
            "r.sase:1:3: unexpected '->'",
            "    A -> B WITHIN 5 s",
            "      ^ write what follows each other as SEQ(A a, B b)",
        ),
    ),
    (
        "LIKE of SQL",
        "sase",
        "SEQ(A a, B b) WHERE a.s LIKE 'x%' WITHIN 5 s",
        (
            "r.sase:1:25: unexpected 'LIKE'",
            "    SEQ(A a, B b) WHERE a.s LIKE 'x%' WITHIN 5 s",
            "                            ^ there is no LIKE; write matches(s, 'regular expression'), startswith(s, 'A') or contains(s, 'A')",
        ),
    ),
    (
        "IS NULL of SQL in SASE",
        "sase",
        "SEQ(A a, B b) WHERE a.s IS NULL WITHIN 5 s",
        (
            "r.sase:1:25: unexpected 'IS'",
            "    SEQ(A a, B b) WHERE a.s IS NULL WITHIN 5 s",
            "                            ^ there is no IS; NOT x = x holds where x has no value",
        ),
    ),
    (
        "IS NULL of SQL in TESLA",
        "tesla",
        "define X() from A(s is null)",
        (
            "r.tesla:1:21: unexpected 'is'",
            "    define X() from A(s is null)",
            "                        ^ there is no IS; NOT x = x holds where x has no value",
        ),
    ),
    (
        "repetition of none or more",
        "sase",
        "SEQ(A a, B* b[]) WITHIN 5 s",
        (
            "r.sase:1:11: unexpected '*'",
            "    SEQ(A a, B* b[]) WITHIN 5 s",
            "              ^ a repetition has one or more events; write '+'",
        ),
    ),
    (
        "step without a policy",
        "tesla",
        "define X() from A() and B(v > (3)) within 5 s from A",
        (
            "r.tesla:1:25: which B? A step says whether it takes each, the last or the first",
            "    define X() from A() and B(v > (3)) within 5 s from A",
            "                            ^ write each, last, first, n-last, n-first or not before B",
        ),
    ),
    (
        "step without a policy or brackets",
        "tesla",
        "define X() from A() and B within 5 s from A",
        (
            "r.tesla:1:25: which B? A step says whether it takes each, the last or the first",
            "    define X() from A() and B within 5 s from A",
            "                            ^ write each, last, first, n-last, n-first or not before B",
        ),
    ),
    (
        "bracket open at within",
        "tesla",
        "define X() from A() and last B( within 5 s from A",
        (
            "r.tesla:1:31: this bracket is not closed",
            "    define X() from A() and last B( within 5 s from A",
            "                                  ^ expected ')' before within",
        ),
    ),
    (
        "more than a megabyte",
        "sase",
        "# " + "x" * 1_100_000,
        (
            "r.sase:1:1: this text is 1.1 MB large; a rule file may have 1.0 MB",
            "    ",
            "    ^ split it into several files",
        ),
    ),
]


@pytest.mark.parametrize(
    ("language", "text", "expected"), [row[1:] for row in SAMPLES], ids=[row[0] for row in SAMPLES]
)
def test_mistake_is_shown_with_its_place_and_a_way_out(language: Language, text: str, expected: Iterable[str]) -> None:
    with pytest.raises(RuleTextError) as caught:
        parse_rules([Source(text, f"r.{language}", language)])
    assert str(caught.value).split("\n") == list(expected)


def test_all_mistakes_of_all_files_are_reported_together() -> None:
    sources = [Source("SEQ(A a, B", "one.sase", "sase"), Source("define X() frm A()", "two.tesla", "tesla")]
    with pytest.raises(RuleTextError) as caught:
        parse_rules(sources)
    places = [(each.file, each.line, each.column) for each in caught.value.diagnostics]
    assert places == [("one.sase", 1, 11), ("two.tesla", 1, 12)]


def test_given_types_close_the_set_and_meet_declarations() -> None:
    types = [EventType("A", {"v": "int"})]
    with pytest.raises(RuleTextError, match="unknown event type 'B'"):
        parse_rules([Source("SEQ(A a, B b) WITHIN 5 s", "r.sase", "sase")], types)
    with pytest.raises(RuleTextError, match=r"already known as A\(v: int\)"):
        parse_rules([Source("event A(w: int) A a WITHIN 5 s", "r.sase", "sase")], types)
    again = Source("event A(v: int) X: A a WITHIN 5 s", "r.sase", "sase")
    assert parse_rules([again], types).types == {"A": types[0]}


def test_a_lone_surrogate_is_a_mistake_in_the_text() -> None:
    with pytest.raises(RuleTextError, match="lone surrogate"):
        parse_rules([Source("SEQ(A a, B b) WHERE a.s = '\ud800' WITHIN 5 s", "r.sase", "sase")])
