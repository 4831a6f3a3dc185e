"""The laws over random definitions of several stages, whatever is corrected on the way (L1 to L3, T3)."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.step.reference import fold
from tailrace.model.windows.panes import answers
from tests.support.cases.stages import chains, holds_for_stages
from tests.support.cases.strategies import epochs, everything, examples
from tests.support.checks.batch_answers import backfilled, batch


@examples(60, deeper=300)
@given(data=st.data())
def test_L1_to_L3_hold_for_every_stage_of_a_random_definition(data: st.DataObject) -> None:
    pipeline = data.draw(chains(kept=True))
    made = data.draw(epochs(pipeline.stages[0]))
    runs = holds_for_stages(pipeline, made)
    alone = sum(1 for run in runs[1:] for pane in run.panes if pane.retraction)
    event(f"{len(runs)} stages, {'some' if alone else 'no'} retractions later on")


@examples(40, deeper=100)
@given(data=st.data())
def test_L1_a_backfill_of_a_later_stage_is_the_batch_over_the_whole_log(data: st.DataObject) -> None:
    pipeline = data.draw(chains(kept=True))
    records = everything(data.draw(epochs(pipeline.stages[0])))
    assert backfilled(pipeline, records, BEGINNING, END_OF_TIME) == batch(pipeline, records)


@examples(40, deeper=100)
@given(data=st.data())
def test_L1_arrival_order_and_epochs_do_not_change_where_a_later_stage_ends(data: st.DataObject) -> None:
    pipeline = data.draw(chains(kept=True))
    made = data.draw(epochs(pipeline.stages[0], ends=True))
    run = fold(pipeline, made)
    late = fold(pipeline.stages[0], made).late
    records = everything(made)
    order = data.draw(st.permutations(range(len(records))))
    assert answers(run.panes) == batch(pipeline, [records[place] for place in order], late)
