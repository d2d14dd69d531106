def seqset_pictures(card):
    return {}


def training_pictures(out):
    return {}


def task_pictures(layout, name):
    return {}
