"""Code for one trigger: given the event that arrived for one unit, find every match it completes.

The generated function binds the remaining units one after another in nested loops. Candidates come from buffers kept in
trace order: a hash lookup where an equality allows it, then bisection by precedence and window, then the remaining
conjuncts. Everything that depends only on what is bound already is computed outside the inner loops.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.node.engine.codegen.code import Writer
from headwater.node.engine.codegen.reading import Level
from headwater.node.engine.codegen.repetitions import DEMAND, RepetitionWriter
from headwater.protocol.analysis.units import Choice, Measure, Spread
from headwater.protocol.expressions import Expression, parameters_of

NEAR = 16  # how far back from the newest event `last` looks before it bisects the whole buffer

LOOPS_MAX = 15  # loops inside each other in one generated function; Python refuses more than 20 blocks

Emit = Callable[[Writer, "JoinWriter"], None]


class JoinWriter(RepetitionWriter):
    """Writes the function for one trigger of one branch."""

    collect: tuple[str, str, bool] | None = None
    """Set when the innermost loop can be written as one comprehension: its clause, its candidates, no condition."""

    nested = 0
    """How many functions inside each other the loops have been spread over so far."""

    counted: tuple[str, bool] | None = None
    """Set when the number of subsets follows from the number of candidates: (candidates, one of them is forced)."""

    numbers: tuple[str, ...] = ()
    """Variables that say for how many choices of its repetitions a match stands, where matches are only counted."""

    demanded_later = ""
    """Source of what looks at a match that has waited."""

    waiting_match: str | None = None
    """Source of the match that waits: it holds the events of repetitions, but asks nothing of them."""

    def write(self, name: str, emit: Emit) -> str:
        """The source of the function; ``emit`` writes what happens with a finished match."""
        self.emit = emit
        self.numbers = ()
        self._equalities()
        self._plan()
        out = self.out
        out.line(f"def {name}({'e' if self.units[self.trigger].many else f'r{self.trigger}'}):")
        out.depth += 1
        self._bind_trigger()
        self._after_step(0)
        self._levels(1)
        out.depth = 0
        return str(out)

    def _plan(self) -> None:
        """Fix the order of the levels, and for each how and when its candidates are fetched."""
        self.levels = []
        bound = [self.trigger]
        if self.in_text_order:
            for step in self.branch.steps:
                self.levels.append(Level(step.unit, step) if isinstance(step, Choice) else step)
        else:
            rest = [unit for unit in range(len(self.units)) if unit != self.trigger]
            while single := [unit for unit in rest if not self.units[unit].many]:
                chosen = min(
                    single, key=lambda unit: (not self._has_key(unit, bound), self._distance(unit, bound), unit)
                )
                self.levels.append(Level(chosen, None))
                bound.append(chosen)
                rest.remove(chosen)
            if self.units[self.trigger].many:
                rest.append(self.trigger)
            self.levels += [Level(unit, None) for unit in sorted(rest)]
        self.step_of = {self.trigger: 0}
        for number, level in enumerate(self.levels, start=1):
            if isinstance(level, Level):
                self.step_of[level.unit] = number
        self.element_step = dict(self.step_of)
        self.element_step[self.trigger] = 0
        self._value_classes()
        self._place_parameters()
        self.conditions = {}
        for condition in self.branch.where:
            if condition not in self.class_conditions and not self._is_own(condition):
                at = max((self.step_of[unit] for unit in self.branch.units_in(condition)), default=0)
                at = max([at, *(self.parameter_step[name] for name in parameters_of(condition))])
                self.conditions.setdefault(at, []).append(condition)

    def _bind_trigger(self) -> None:
        unit = self.units[self.trigger]
        leaf = unit.leaves[self.trigger_leaf]
        for guard in self._class_guards(self.trigger, leaf.role, "e" if unit.many else f"r{self.trigger}"):
            self.skip_unless(guard)
        for condition in self.conditions.get(0, []):
            self.skip_unless(self.scope.truth(condition))
        for step, level in enumerate(self.levels, start=1):
            if isinstance(level, Level):
                self._prepare(step, level)

    def _after_step(self, step: int) -> None:
        """Write everything that can be known once the unit of this step is bound."""
        later = [level for level in self.levels[step:] if isinstance(level, Level)]
        for level in later:
            for leaf, name in enumerate(level.names):
                if level.fetch_step[leaf] != step:
                    continue
                self.out.line(level.fetch[leaf])
                if level.unit != self.trigger or leaf != self.trigger_leaf:
                    self.out.line(f"if not {name}: {self.skip}")
                elif ".get(" in level.fetch[leaf]:  # the trigger itself may be the only element
                    self.out.line(f"if {name} is None: {name} = []")
        for level in later:
            for leaf in range(len(level.names)):
                lower, upper, _ = self._bounds_of(level, leaf)
                for bound in (*lower, *upper):
                    if bound.step == step:
                        self.out.line(f"{bound.variable} = {bound.source}")
        self._negations(step)

    def _levels(self, step: int) -> None:
        if step > len(self.levels):
            for unit in self.limited():
                if self.step_of[unit] != len(self.levels):
                    self.out.line(f"if {self.over_limit_found(unit)}: {self.skip}")
            self.emit(self.out, self)
            return
        if self._loops_here() >= LOOPS_MAX:
            self._in_function(step)
            return
        level = self.levels[step - 1]
        if isinstance(level, Measure):
            self._measure(step, level)
            for condition in self.conditions.get(step, []):
                self.skip_unless(self.scope.truth(condition))
            self._after_step(step)
            self._levels(step + 1)
        elif self.units[level.unit].many:
            self._repetition(step, level)
        else:
            self._single(step, level)

    def _loops_here(self) -> int:
        """How many loops are open in the function that is being written."""
        return self.skips[::-1].index("return")

    def _in_function(self, step: int) -> None:
        """Go on in a function of its own: Python does not allow more than 20 loops inside each other."""
        self.nested += 1
        name = f"deeper{self.nested}"
        self.out.line(f"def {name}():")
        self.out.depth += 1
        self.skips.append("return")
        self._levels(step)
        self.skips.pop()
        self.out.depth -= 1
        self.out.line(f"{name}()")

    def _single(self, step: int, level: Level) -> None:
        choice = level.choice
        if choice is not None and choice.policy != "each":
            loops = self._choose(level, choice, self._single_conditions(step, level))
            self._bound_single(step, level.unit)
            self._levels(step + 1)
            if loops:
                self._leave_loop()
            return
        if self._collapses(step):
            last = step == len(self.levels)
            clauses = [self._clause(at, step) for at in range(step, len(self.levels) + 1)]
            conditional = not last or " if " in clauses[0]
            self.collect = (" ".join(clauses), self._candidates(level, 0), not conditional)
            self.emit(self.out, self)
            return
        self._enter_loop(f"for r{level.unit} in {self._candidates(level, 0)}:")
        conditions = self._single_conditions(step, level)
        if conditions:
            self.skip_unless(" and ".join(conditions))
        self._bound_single(step, level.unit)
        self._levels(step + 1)
        self._leave_loop()

    def _single_conditions(self, step: int, level: Level) -> list[str]:
        """What a candidate must satisfy beyond lying in the range."""
        unit = level.unit
        conditions = self._class_conditions(unit, self.units[unit].leaves[0].role, level.used_class[0])
        conditions += [
            self.scope.truth(condition)
            for condition in self.conditions.get(step, [])
            if condition != level.used_condition[0]
        ]
        *_, extra = self._bounds_of(level, 0)
        return conditions + extra + self._distinct(unit, 0, f"r{unit}")

    def _clause(self, at: int, first: int) -> str:
        """One loop of a comprehension that begins with the loop of step ``first``."""
        level = self.levels[at - 1]
        assert isinstance(level, Level)
        role = self.units[level.unit].leaves[0].role
        conditions = self._single_conditions(at, level) + self._class_guards(level.unit, role, f"r{level.unit}")
        kept = f" if {' and '.join(conditions)}" if conditions else ""
        return f"for r{level.unit} in {self._candidates(level, 0, first)}{kept}"

    def _collapses(self, step: int) -> bool:
        """Whether the loops from this step on can be one comprehension: nothing happens in them but conditions."""
        clauses = len(self.levels) + 1 - step
        if not self._finishes(len(self.levels)) or self._loops_here() + clauses > LOOPS_MAX:
            return False
        for at in range(step, len(self.levels) + 1):
            level = self.levels[at - 1]
            if not isinstance(level, Level) or self.units[level.unit].many or level.fetch_step[0] >= step:
                return False
            if level.choice is not None and level.choice.policy != "each":
                return False
            lower, upper, _ = self._bounds_of(level, 0)
            if any(":=" in bound.source for bound in (*lower, *upper) if bound.step >= step):
                return False
            if any(self._negation_step(f) == at and id(f) not in self.hoisted for f in self.branch.forbidden):
                return False
            if any(self._spread_step(spread) == at for spread in self.branch.spreads):
                return False
        return True

    def _repetition(self, step: int, level: Level) -> None:
        unit = level.unit
        repetition = self.units[unit]
        out = self.out
        forced = unit == self.trigger
        roles = repetition.roles
        conditions = self.conditions.get(step, [])
        lists = self._element_lists(step, level, conditions)
        self.complete.add(unit)
        tests = self._finished_checks(unit, conditions, roles)
        plain = self._finishes(step) and not tests
        source = self._subsets(unit, repetition, lists, forced, conditions, roles, plain)
        names = [f"k{unit}_{leaf_number}" for leaf_number in range(len(repetition.leaves))]
        target = names[0] if len(names) == 1 else ", ".join(names)
        if plain and DEMAND not in source:
            self.collect = (f"for {target} in {source}", source, True)
            self.counted = (lists[0], forced) if source.startswith("subsets") else None
            self.emit(self.out, self)
            return
        if DEMAND in source:
            target = f"w{unit}, {target if len(names) == 1 else f'({target})'}"
            self.numbers += (f"w{unit}",)
        header = len(out.lines)
        self._enter_loop(f"for {target} in {source}:")
        for test in tests:
            self.skip_unless(test)
        for spread in self.branch.spreads:
            if self._spread_step(spread) == step:
                self.skip_unless(self.spread_condition(spread))
        self._after_step(step)
        self._levels(step + 1)
        self._leave_loop()
        if DEMAND in source:
            text = "\n".join([*out.lines[header + 1 :], self.demanded_later]).replace(self.waiting_match or "\0", "")
            out.lines[header] = out.lines[header].replace(DEMAND, self._demand(unit, text))

    def _element_lists(self, step: int, level: Level, conditions: list[Expression]) -> list[str]:
        """Write the lists of events that may be elements of a repetition, one for each leaf; their names."""
        unit = level.unit
        repetition = self.units[unit]
        out = self.out
        roles = repetition.roles
        lists = []
        for leaf_number, leaf in enumerate(repetition.leaves):
            element = self._element(unit, leaf_number)
            with self.reading({(leaf.role, ""): element}):
                tests = self._class_conditions(unit, leaf.role, level.used_class[leaf_number])
                tests += [
                    self.scope.truth(condition)
                    for condition in conditions
                    if self._about_element(condition, roles, leaf.role)
                    and condition != level.used_condition[leaf_number]
                ]
            *_, extra = self._bounds_of(level, leaf_number)
            tests += extra + self._distinct(unit, leaf_number, element)
            candidates = self._candidates(level, leaf_number)
            variable = f"c{unit}_{leaf_number}"
            lists.append(variable)
            if repetition.limit is not None and step == len(self.levels):
                out.line(f"if {self.over_limit_found(unit)}: {self.skip}")
            if tests:
                out.line(f"{variable} = [{element} for {element} in {candidates} if {' and '.join(tests)}]")
            else:
                out.line(f"{variable} = {candidates}")
            if unit == self.trigger and leaf_number == self.trigger_leaf:
                with self.reading({(leaf.role, ""): "e"}):
                    self._forced_checks(level, leaf_number, conditions, roles)
            else:
                out.line(f"if not {variable}: {self.skip}")
        return lists

    def _finishes(self, step: int) -> bool:
        """Nothing is left to do after this step but to emit."""
        if step != len(self.levels) or any(self.step_of[u] < step or self.limit_waits(u) for u in self.limited()):
            return False
        if any(self._spread_step(spread) == step for spread in self.branch.spreads):
            return False
        return not any(
            forbidden.waits or (self._negation_step(forbidden) == step and id(forbidden) not in self.hoisted)
            for forbidden in self.branch.forbidden
        )

    def _spread_step(self, spread: Spread) -> int:
        return max(self.step_of[unit] for part in spread.parts for unit in part)

    def _bound_single(self, step: int, unit: int) -> None:
        for guard in self._class_guards(unit, self.units[unit].leaves[0].role, f"r{unit}"):
            self.skip_unless(guard)
        for spread in self.branch.spreads:
            if self._spread_step(spread) == step:
                self.skip_unless(self.spread_condition(spread))
        self._after_step(step)

    def _choose(self, level: Level, choice: Choice, conditions: list[str]) -> bool:
        """Bind the last or first candidate, or open a loop over the n chosen ones; whether it did the latter."""
        out = self.out
        row = f"r{level.unit}"
        name = level.names[0]
        last = choice.policy == "last"
        if last and choice.count == 1 and not conditions:
            self._choose_nearest(level, row)
            return False
        lower, upper, _ = self._bounds_of(level, 0)
        for bound in (*lower, *upper):
            if bound.step == self.step_of[level.unit]:
                out.line(f"{bound.variable} = {bound.source}")
        low, high = self._range_source(level, 0)
        if choice.count == 1 and not conditions:
            out.line(f"i = {low or 0}")
            out.line(f"if i >= {high or f'len({name})'}: {self.skip}")
            out.line(f"{row} = {name}[i]")
            return False
        candidates = self._candidates(level, 0)
        if last:
            candidates = f"reversed({candidates})" if low or high else f"reversed({name})"
        test = " and ".join(conditions) or "True"
        if choice.count == 1:
            out.line(f"for {row} in {candidates}:")
            out.line(f"    if {test}: break")
            out.line(f"else: {self.skip}")
            return False
        chosen = f"chosen{level.unit}"
        out.line(f"{chosen} = []")
        out.line(f"for {row} in {candidates}:")
        out.line(f"    if {test}:")
        out.line(f"        {chosen}.append({row})")
        out.line(f"        if len({chosen}) == {choice.count}: break")
        self._enter_loop(f"for {row} in {chosen}:")
        return True

    def _choose_nearest(self, level: Level, row: str) -> None:
        """The last candidate without further conditions: one step back, then see whether it is near enough."""
        name = level.names[0]
        _, upper, _ = self._bounds_of(level, 0)
        _, high = self._range_source(level, 0)
        if len(upper) == 1 and upper[0].step == self.step_of[level.unit]:
            # Mostly the very last one, or one of the last few: look there before bisecting the whole window.
            (origin,) = (gap.later for gap in self.branch.gaps_from(level.unit))
            self.out.line(f"{row} = {name}[-1]")
            self.out.line(f"if not {row} < r{origin}:")
            self.out.line(f"    i = len({name}) - {NEAR}")
            self.out.line(f"    i = bisect_left({name}, r{origin}, i if i > 0 and {name}[i] < r{origin} else 0)")
            self.out.line(f"    if not i: {self.skip}")
            self.out.line(f"    {row} = {name}[i - 1]")
        elif high:
            self.out.line(f"i = {high}")
            self.out.line(f"if not i: {self.skip}")
            self.out.line(f"{row} = {name}[i - 1]")
        else:
            self.out.line(f"{row} = {name}[-1]")
        for gap in self.branch.gaps_from(level.unit):
            if self.step_of[gap.later] < self.step_of[level.unit]:
                self.out.line(f"if {self.end_ts(gap.later)} - {row}[0] > {gap.length}: {self.skip}")
