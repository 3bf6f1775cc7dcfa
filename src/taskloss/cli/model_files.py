"""The names of the files in the folder of a model; this module imports nothing that loads slowly."""

WEIGHTS, FACTS, CHECKPOINT = "model.safetensors", "model.json", "checkpoint"
