from tests.support import reference_model


def patients(encoder, weights, batch):
    rows = reference_model.encode_flat(weights, encoder.config, batch)
    return rows[batch.set_offsets[batch.subject_offsets[1:] - 1]]
