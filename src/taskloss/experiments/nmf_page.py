"""The page of the experiment on nonnegative matrix factorization."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch.nn import functional

from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.heat_maps import overlap, unpack_maps
from taskloss.experiments.journal import Record
from taskloss.experiments.page import Claim, Page, add_legend, fill_page, make_figure, make_table
from taskloss.experiments.statistics import Difference, describe_mean, paired_difference

TILE = 64
"""Side of an image in the figure, in pixels."""
MAP_COLOURS = ((255.0, 30.0, 0.0), (0.0, 80.0, 255.0))
"""The first map of an image is laid over it in red, the second in blue."""
COLOUR_STEP = 8
"""Colours of the figure are rounded to multiples of this, which makes the file smaller."""
MEASURES = {"precision": "AP", "inside": "mass on the object"}
"""What the measures of a heat map are called."""
PENALTY_NAMES = {"none": "no penalty", "LP": "LP residual", "energy": "energy residual"}
PENALTY_COLOURS = {"LP": "tab:blue", "energy": "tab:orange"}


def make_page(experiment: Experiment, results: Results) -> Page:
    """Return the page."""
    maps, measured, training = results["heat maps"], results["measured"], results["training"]
    return fill_page(
        "nmf",
        [*_claims_about_maps(maps, measured), *_claims_about_training(training)],
        {"nmf": _draw_maps(results), "nmf-training": _draw_training(training)},
        source=experiment.source,
        images=len(results["images"]),
        grid=_height(maps[0]),
        costs=_table_of_costs(maps),
        overlaps=_table_of_overlaps(maps),
        count=len(measured),
        share=f"{100 * fmean(record['share'] for record in measured):.0f}%",
        precision=_table_of_measured(measured, "precision"),
        inside=_table_of_measured(measured, "inside"),
        training=_table_of_training(training),
        chosen=_spell_chosen(training),
        **{name: results["size"][name] for name in ("side", "iterations", "examined")},
    )


# --- heat maps ----------------------------------------------------------------------------------------------------------


def _height(record: Record) -> int:
    """Return the height of the heat maps, which are square."""
    return round(len(base64.b64decode(record["maps"][0])) ** 0.5)


def _maps(record: Record) -> np.ndarray:
    return unpack_maps(record["maps"], _height(record))


def _channels(records: Sequence[Record]) -> list[int]:
    return sorted({record["channels"] for record in records})


def _select(records: Sequence[Record], **where: Any) -> list[Record]:
    return [record for record in records if all(record[key] == value for key, value in where.items())]


def _table_of_costs(maps: Sequence[Record]) -> str:
    shares = ("explained sum", "explained energy", "energy of updates")
    rows = []
    for channels in _channels(maps):
        for rank in (1, 2):
            records = _select(maps, channels=channels, rank=rank)
            seconds = [record["factorization seconds"] for record in records]
            memory = [record["memory"] for record in records if record["memory"] is not None]
            rows.append(
                [
                    channels,
                    rank,
                    f"{fmean(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})",
                    f"{max(memory):,}" if memory else "not measured",
                    *(f"{100 * fmean(record[key] for record in records):.0f}" for key in shares),
                ]
            )
    return make_table(["channels", "rank", "seconds", "MiB at most", "sum, %", "energy, %", "energy by updates, %"], rows)


def _table_of_overlaps(maps: Sequence[Record]) -> str:
    channels = _channels(maps)
    rows = []
    for first, second in ((a, b) for a in channels for b in channels if a < b):
        cells = []
        for rank in (1, 2):
            pairs = zip(*(_select(maps, channels=count, rank=rank) for count in (first, second)), strict=True)
            values = [overlap(_maps(one), _maps(other)) for one, other in pairs]
            cells.append(f"{100 * fmean(values):.0f} ({100 * min(values):.0f} to {100 * max(values):.0f})")
        rows.append([f"{first} and {second} channels", *cells])
    rows.append(["two images, the same channels", *(_overlap_of_images(maps, rank) for rank in (1, 2))])
    return make_table(["", "rank 1, %", "rank 2, %"], rows)


def _overlap_of_images(maps: Sequence[Record], rank: int) -> str:
    """Return the mean overlap of the maps of two different images: what maps that have nothing in common overlap."""
    values = []
    for channels in _channels(maps):
        own = [_maps(record) for record in _select(maps, channels=channels, rank=rank)]
        values += [overlap(own[a], own[b]) for a in range(len(own)) for b in range(a)]
    return f"{100 * fmean(values):.0f}" if values else "one image"


def _table_of_measured(measured: Sequence[Record], measure: str) -> str:
    rows = [["a map that says nothing", describe_mean([record["share"] for record in measured])]]
    for name in measured[0][measure]:
        values = [record[measure][name] for record in measured]
        rows.append([name, *(describe_mean([value[rank] for value in values]) for rank in range(len(values[0])))])
    return make_table(["heat map", "rank 1", "rank 2"], [[*row, *[""] * (3 - len(row))] for row in rows])


def _claims_about_maps(maps: Sequence[Record], measured: Sequence[Record]) -> list[Claim]:
    most = _channels(maps)[-1]
    records = _select(maps, channels=most)
    seconds = fmean(record["factorization seconds"] for record in records)
    memory = max(record["memory"] or 0 for record in records)
    text = "More than 20 channels can be factored (the paper: c = 20 is what fits into 11 GB)."
    evidence = f"{most} channels in {seconds:.0f} seconds" + (f" and at most {memory:,} MiB" if memory else "")
    return [Claim(text, evidence, True), *(claim for measure in MEASURES for claim in _claims_about_objects(measured, measure))]


def _claims_about_objects(measured: Sequence[Record], measure: str) -> list[Claim]:
    """Compare the heat maps of the LP with chance and with other maps."""

    def values(name: str, rank: int) -> list[float]:
        return [record[measure][name][rank - 1] for record in measured]

    ours, own = "LP with 20 channels", " (not in the paper)"
    rivals = [
        ("The heat map captures a meaningful part: it is better than a map that says nothing", 1, "", "chance"),
        (f"It is better than drawn channels{own}", 1, "drawn channels", "a channel drawn among the same 20"),
        (f"It is better than drawn channels{own}", 2, "drawn channels", "the better of two channels drawn among the same 20"),
        (f"It is better than the mean of all channels{own}", 1, "mean of all channels", "the mean"),
        (f"It is better than multiplicative updates{own}", 2, "updates, 20", "updates"),
    ]
    claims = []
    for text, rank, name, described in rivals:
        theirs = values(name, rank) if name else [record["share"] for record in measured]
        difference = paired_difference(values("LP, 20", rank), theirs)
        where = f", rank {rank}, {MEASURES[measure]}"
        claims.append(Claim.that_first_is_better(f"{text}.", ours, described, difference, where))
    return claims


def _draw_maps(results: Results) -> Figure:
    """Draw the images in the first row, then one row per number of channels and rank."""
    maps = results["heat maps"]
    pictures = [_read_picture(packed) for packed in results["images"]]
    labels, rows = ["image"], [np.hstack(pictures)]
    for channels in _channels(maps):
        for rank in (1, 2):
            records = _select(maps, channels=channels, rank=rank)
            labels.append(f"{channels} channels, k = {rank}")
            laid = [_lay_over(picture, _maps(record)) for picture, record in zip(pictures, records, strict=True)]
            rows.append(np.hstack(laid))
    mosaic = np.vstack(rows)
    mosaic = (mosaic // COLOUR_STEP * COLOUR_STEP + COLOUR_STEP // 2).astype(np.uint8)
    figure = Figure(figsize=(1.2 + 1.1 * len(pictures), 1.1 * len(rows)), layout="constrained")
    ax = figure.subplots()
    ax.imshow(mosaic, interpolation="none")
    ax.set_yticks([TILE * (row + 0.5) for row in range(len(rows))], labels)
    ax.set_xticks([])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return figure


def _read_picture(packed: str) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(packed))) as image:
        return np.asarray(image.convert("RGB").resize((TILE, TILE), Image.Resampling.BOX))


def _lay_over(picture: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Lay the maps over a darker form of the image."""
    large = functional.interpolate(torch.from_numpy(maps)[None], picture.shape[:2], mode="bicubic")[0].clamp(0, 1).numpy()
    result = 0.6 * picture.astype(np.float64)
    for colour, weight in zip(MAP_COLOURS, large, strict=False):
        result = result * (1 - 0.75 * weight[..., None]) + 0.75 * weight[..., None] * np.array(colour)
    return result.clip(0, 255).astype(np.uint8)


# --- training -----------------------------------------------------------------------------------------------------------


def _values(training: Sequence[Record], key: str, penalty: str, weight: float) -> list[float]:
    return [record[key] for record in _select(training, penalty=penalty, weight=weight)]


def _settings(training: Sequence[Record]) -> list[tuple[str, float]]:
    """Return the penalties with their weights, in the order of the records."""
    return list(dict.fromkeys((record["penalty"], record["weight"]) for record in training))


def choose_weight(training: Sequence[Record], penalty: str) -> float:
    """Return the weight of a penalty with the highest validation accuracy, the mean over the seeds."""
    weights = [weight for name, weight in _settings(training) if name == penalty]
    return max(weights, key=lambda weight: fmean(_values(training, "validation", penalty, weight)))


def _spell_chosen(training: Sequence[Record]) -> str:
    return " and ".join(f"{choose_weight(training, penalty):g} for the {PENALTY_NAMES[penalty]}" for penalty in PENALTY_COLOURS)


def _table_of_training(training: Sequence[Record]) -> str:
    rows = []
    for penalty, weight in _settings(training):
        keys = ("validation", "test", "residual", "energy residual", "LP map, inside", "mean map, inside")
        seconds = fmean(_values(training, "training seconds", penalty, weight))
        rows.append(
            [
                PENALTY_NAMES[penalty],
                f"{weight:g}" if weight else "",
                *(describe_mean(_values(training, key, penalty, weight)) for key in keys),
                f"{fmean(_values(training, 'channels', penalty, weight)):.1f}",
                f"{seconds:.0f}",
            ]
        )
    columns = ["penalty", "weight", "validation accuracy", "test accuracy", "LP residual", "energy residual"]
    measures = ["LP map: mass on the object", "mean map: mass on the object"]
    return make_table([*columns, *measures, "channels in use", "seconds"], rows)


def _claims_about_training(training: Sequence[Record]) -> list[Claim]:
    weight, rival = choose_weight(training, "LP"), choose_weight(training, "energy")

    def difference(key: str, penalty: str, of_penalty: float) -> Difference:
        return paired_difference(_values(training, key, "LP", weight), _values(training, key, penalty, of_penalty))

    first, second, without = f"LP residual with weight {weight:g}", f"energy residual with weight {rival:g}", "no penalty"
    residuals = [_values(training, "residual", *setting) for setting in (("none", 0.0), ("LP", weight))]
    lower = paired_difference(*residuals)
    claims = [Claim.that_first_is_better("Training lowers the residual on test images.", without, first, lower)]
    key, where = "LP map, inside", f", {MEASURES['inside']}"
    text = "The heat map learned with the penalty shows the object better."
    claims.append(Claim.that_first_is_better(text, first, without, difference(key, "none", 0.0), where))
    text = "It does so better than that of the closed form (not in the paper)."
    claims.append(Claim.that_first_is_better(text, first, second, difference(key, "energy", rival), where))
    text = "The penalty raises the test accuracy (not in the paper)."
    claims.append(Claim.that_first_is_better(text, first, without, difference("test", "none", 0.0)))
    return claims


def _draw_training(training: Sequence[Record]) -> Figure:
    """Draw accuracy and heat maps over the residual that is left; each point is one penalty and weight, the mean of its seeds."""
    figure, axes = make_figure(2)
    drawn = {"test": "test accuracy, %", "LP map, inside": "mass of the LP heat map on the object, %"}
    for ax, (key, title) in zip(axes, drawn.items(), strict=True):
        for penalty, colour in PENALTY_COLOURS.items():
            settings = [("none", 0.0), *(pair for pair in _settings(training) if pair[0] == penalty)]
            points = [[100 * fmean(_values(training, name, *pair)) for name in ("residual", key)] for pair in settings]
            ax.plot(*zip(*points, strict=True), marker="o", color=colour, label=PENALTY_NAMES[penalty])
            for (x, y), (name, weight) in zip(points, settings, strict=True):
                ax.annotate(
                    f"{weight:g}" if name != "none" else "none", (x, y), textcoords="offset points", xytext=(4, 5), fontsize=8
                )
        ax.set(xlabel="LP residual on test images, %", ylabel=title)
    add_legend(figure, axes[0])
    return figure
