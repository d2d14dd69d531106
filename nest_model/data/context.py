"""A model's context of each example: what of a selection it reads, and in which order an ablation shows the past."""

import logging
from dataclasses import replace

import numpy as np

from nest_model.config import ModelConfig
from nest_model.data.mixing import bits, mix
from nest_model.data.selection import ContextCut, Selection, limit_context
from nest_model.data.seqsets import SeqSets

log = logging.getLogger("nest")


def model_context(
    seqsets: SeqSets, selection: Selection, config: ModelConfig
) -> tuple[Selection, ContextCut]:
    """Cut each example to the model's context; a model with a `shuffle_seed` then reads the earlier sets shuffled.

    A model that knows types of visit, of which the shards have none, is used nevertheless, with a warning.
    """
    if config.visit_types and not set(config.visit_types) & set(seqsets.admission_types):
        log.warning(
            "the shards have none of the %d types of visit that the model was trained with, so every set counts as one "
            "without a type; write the shards again if their source has types.",
            len(config.visit_types),
        )
    within_limits, cut = limit_context(selection, **config.context)
    if config.shuffle_seed is None:
        return within_limits, cut
    return shuffle_before_target(seqsets, within_limits, config.shuffle_seed), cut


def shuffle_before_target(seqsets: SeqSets, selection: Selection, seed: int) -> Selection:
    """Permute the contents of the sets before each example's target among their places.

    Places, with their days and gaps, stay; hours are those since the start of the set an event comes from. The
    contents are sorted by a hash of seed, patient and set: every permutation is as likely as any other, and all
    examples of a patient, in whatever split or shards, have them in the same order.
    """
    sets = selection.sets
    keys = mix(np.full(len(sets), seed))
    for names in (seqsets.subject_id, seqsets.encounter_id):
        keys = mix(keys ^ bits(names[sets]))
    is_target = np.zeros(len(sets), dtype=bool)
    is_target[selection.set_offsets[1:] - 1] = True
    # sorted by example, in it the target last
    order = np.lexsort((keys, is_target, selection.example_of_pair))
    return replace(
        selection, event_starts=selection.event_starts[order], event_counts=selection.event_counts[order]
    )
