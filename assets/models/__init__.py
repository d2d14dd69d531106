"""Assets that train: pretraining, and the models of each cohort."""
