"""Heat maps and what they explain, the penalties with their gradients, and the experiment at a tiny size."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import decomposition
from sklearn.metrics import average_precision_score

from taskloss.experiments import nmf, nmf_training
from taskloss.experiments.heat_maps import (
    explained_shares,
    match_object,
    mean_of_better,
    multiplicative_updates,
    overlap,
    pack_maps,
    peak_memory,
    reset_peak_memory,
    smooth,
    top_channels,
    unpack_maps,
)
from taskloss.experiments.journal import Journal
from taskloss.experiments.nmf_page import choose_weight
from taskloss.experiments.nmf_training import MapClassifier, PenalizedCrossEntropy, energy_residual, lp_residual
from taskloss.experiments.page import render_svg
from taskloss.experiments.pretrained import SQUEEZENET
from taskloss.experiments.runner import Files, Runner
from taskloss.experiments.segmented_activations import MASK_SIDE, ObjectImages, make_object_images, read_object_images
from taskloss.experiments.voc_detection import PACKED
from taskloss.experiments.voc_segmentation import BACKGROUND, VOID, read_segmentation
from tests.experiments.devkit import as_jpeg, write_image, write_list
from tests.experiments.stored_weights import squeezenet_weights, write_weights
from tests.experiments.test_runner import silent


def random_matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- heat maps ----------------------------------------------------------------------------------------------------------


def test_the_channels_with_the_largest_sums_are_kept():
    activations = torch.tensor([[[1.0, 1.0]], [[5.0, 0.0]], [[0.0, 3.0]]])
    assert top_channels(activations, 2).tolist() == [[5.0, 0.0], [0.0, 3.0]]


def test_smoothing_takes_means_of_the_neighbours_that_are_there():
    activations = torch.zeros(1, 3, 3)
    activations[0, 0, 0] = 36.0
    # The corner has 4 pixels in its neighbourhood, the pixel beside it 6, the middle 9.
    assert smooth(activations)[0].tolist() == [[9.0, 6.0, 0.0], [6.0, 4.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("rank", [2, 3])
def test_updates_come_as_close_as_scikit_learn(rank):
    matrix = random_matrix(8, 12)
    left, right = multiplicative_updates(matrix, rank)
    assert left.min() >= 0
    assert right.min() >= 0
    residual = (matrix - left @ right).norm().item()
    model = decomposition.NMF(rank, init="nndsvd", tol=1e-4, max_iter=2000).fit(matrix.numpy())
    assert residual == pytest.approx(model.reconstruction_err_, rel=0.03)


def test_updates_of_rank_one_find_the_largest_singular_value():
    matrix = random_matrix(6, 9, seed=1)
    left, right = multiplicative_updates(matrix, 1)
    assert explained_shares(matrix, left @ right)[1] == pytest.approx(1 - energy_residual(matrix[None, :, :, None]).item())


def test_precisions_are_those_of_scikit_learn_on_known_pixels():
    rng = np.random.default_rng(0)
    maps, mask = torch.from_numpy(rng.random((2, 6, 6))), rng.integers(0, 3, (6, 6))
    shown, known = mask == 1, mask != 2
    matches = match_object(maps, shown, known)
    assert [match.precision for match in matches] == pytest.approx(
        [average_precision_score(shown[known], one.numpy()[known]) for one in maps]
    )
    assert [match.inside for match in matches] == pytest.approx(
        [one.numpy()[shown].sum() / one.numpy()[known].sum() for one in maps]
    )


def test_a_map_of_a_part_is_inside_but_does_not_cover_the_object():
    shown, all_known = np.zeros((4, 4), bool), np.ones((4, 4), bool)
    shown[:2] = True
    whole, part, none = torch.zeros(4, 4), torch.zeros(4, 4), torch.zeros(4, 4)
    whole[:2] = part[:2, :2] = 1.0
    matches = match_object(torch.stack([whole, part, none]), shown, all_known)
    assert [match.inside for match in matches] == [1.0, 1.0, 0.5]
    # Of the part, the four pixels on the object come first; the other four are tied with the eight pixels beside it.
    assert matches[0].precision == 1.0
    assert 0.5 < matches[1].precision < 1.0
    assert matches[2].precision == 0.5


def test_the_mean_of_the_better_is_that_over_all_pairs():
    values = [0.3, 0.9, 0.1, 0.5]
    pairs = [max(a, b) for i, a in enumerate(values) for b in values[:i]]
    assert mean_of_better(values) == pytest.approx(np.mean(pairs))


def test_overlap_matches_maps_in_the_better_order():
    one, other = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert overlap(np.stack([one, other]), np.stack([other, one])) == 1.0
    assert overlap(one[None], other[None]) == 0.0


def test_packed_maps_come_back():
    maps = torch.tensor([[[0.0, 2.0], [4.0, 1.0]], [[3.0, 3.0], [0.0, 0.0]]])
    back = unpack_maps(pack_maps(maps), 2)
    assert back == pytest.approx(np.array([[[0.0, 0.5], [1.0, 0.25]], [[1.0, 1.0], [0.0, 0.0]]]), abs=0.002)


def test_peak_memory_sees_what_was_given_back():
    before = reset_peak_memory()
    if before is None:
        pytest.skip("needs /proc/self/clear_refs")
    torch.ones(2**23).sum()  # 32 MiB
    assert 30 * 1024 < peak_memory() - before < 64 * 1024


# --- penalties ----------------------------------------------------------------------------------------------------------


def test_separable_activations_have_no_residual():
    one_map = torch.rand(9, generator=torch.Generator().manual_seed(0)) + 0.1
    maps = torch.stack([weight * one_map for weight in (1.0, 2.0, 0.5)])[None].reshape(1, 3, 3, 3)
    assert lp_residual(maps).item() == pytest.approx(0.0, abs=1e-5)
    assert energy_residual(maps).item() == pytest.approx(0.0, abs=1e-5)


def test_the_residual_of_two_channels_by_hand():
    # The first row generates nothing of the second and the other way round: the larger one, after the division by its sum, is
    # no better than the smaller one, and whichever is the anchor, the other is left.
    maps = torch.tensor([[[[4.0, 0.0]], [[0.0, 1.0]]]])
    assert lp_residual(maps).item() in (pytest.approx(0.2, abs=1e-5), pytest.approx(0.8, abs=1e-5))
    assert energy_residual(maps).item() == pytest.approx(1 / 17)


@pytest.mark.parametrize("residual", [lp_residual, energy_residual])
def test_the_gradient_of_a_residual_is_that_of_finite_differences(residual):
    maps = random_matrix(4, 9, seed=3).reshape(1, 4, 3, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(residual(maps), maps)
    step = 1e-5
    for channel, pixel in ((0, 0), (1, 4), (2, 8), (3, 5)):
        change = torch.zeros_like(maps).flatten()
        change[channel * 9 + pixel] = step
        change = change.reshape(maps.shape)
        with torch.no_grad():
            slope = (residual(maps + change) - residual(maps - change)) / (2 * step)
        assert gradient.flatten()[channel * 9 + pixel].item() == pytest.approx(slope.item(), abs=1e-5)


def test_an_image_without_activations_costs_nothing():
    maps = torch.cat([torch.zeros(1, 3, 2, 2), torch.ones(1, 3, 2, 2)]).requires_grad_()
    value = lp_residual(maps)
    value.backward()
    assert value.item() == pytest.approx(0.0, abs=1e-5)
    assert torch.isfinite(energy_residual(maps.detach()))


def test_the_penalty_is_added_with_its_weight(monkeypatch):
    monkeypatch.setattr(nmf_training, "PENALIZED", 3)  # All of them, so that it does not matter which are drawn.
    outputs = MapClassifier(5, 4, seed=0)(torch.rand(3, 5, 3, 3, generator=torch.Generator().manual_seed(0)))
    target = torch.tensor([0, 3, 1])
    plain = PenalizedCrossEntropy("none", 0.0, 0)(outputs, target)
    assert plain.item() == pytest.approx(torch.nn.functional.cross_entropy(outputs.scores, target).item())
    for name, residual in (("LP", lp_residual), ("energy", energy_residual)):
        penalized = PenalizedCrossEntropy(name, 0.5, 0)(outputs, target)
        assert penalized.item() == pytest.approx(plain.item() + 0.5 * residual(outputs.maps).item(), abs=1e-6)


def test_the_weight_is_chosen_by_validation_of_all_seeds():
    def record(penalty: str, weight: float, accuracies: tuple[float, float]) -> list[dict]:
        return [{"penalty": penalty, "weight": weight, "validation": value, "test": 1 - value} for value in accuracies]

    training = [
        *record("none", 0.0, (0.9, 0.9)),
        *record("LP", 0.3, (0.8, 0.5)),
        *record("LP", 1.0, (0.7, 0.7)),
        *record("energy", 1.0, (0.6, 0.5)),
        *record("energy", 3.0, (0.5, 0.5)),
    ]
    assert choose_weight(training, "LP") == 1.0
    assert choose_weight(training, "energy") == 1.0


# --- images with a mask -------------------------------------------------------------------------------------------------


def write_packed(data: Path, masks: list[np.ndarray], splits: list[str]) -> None:
    rng = np.random.default_rng(0)
    (data / PACKED).parent.mkdir(parents=True)
    np.savez(
        data / PACKED,
        **as_jpeg([rng.integers(0, 256, (*mask.shape, 3), np.uint8) for mask in masks]),
        size=np.array([mask.shape[::-1] for mask in masks]),
        mask=np.concatenate([mask.reshape(-1) for mask in masks]),
        mask_offset=np.cumsum([0, *(mask.size for mask in masks)]),
        image_id=np.array([f"{number:03}" for number in range(len(masks))]),
        split=np.array(splits),
    )


def object_mask(number: int, height: int, width: int) -> np.ndarray:
    """A mask whose upper left quarter is of a class, with a border of void pixels below it."""
    mask = np.full((height, width), BACKGROUND, np.uint8)
    mask[: height // 2, : width // 2] = number
    mask[height // 2, : width // 2] = VOID
    return mask


def test_reads_masks_of_both_layouts(tmp_path):
    masks = [object_mask(3, 40, 60), object_mask(20, 30, 20)]
    write_packed(tmp_path / "packed", masks, ["val", "train"])
    folder = tmp_path / "official" / "VOCdevkit" / "VOC2012"
    (folder / "SegmentationClass").mkdir(parents=True)
    for number, mask in enumerate(masks):
        write_image(folder, f"{number:03}", mask.shape[1], mask.shape[0])
        image = Image.fromarray(mask)
        image.putpalette([7 * value % 256 for value in range(768)])
        image.save(folder / "SegmentationClass" / f"{number:03}.png")
    write_list(folder / "ImageSets" / "Segmentation" / "train.txt", ["001"])
    write_list(folder / "ImageSets" / "Segmentation" / "val.txt", ["000"])
    for layout in ("packed", "official"):
        images = read_segmentation(tmp_path / layout)
        assert [(image.image_id, image.split) for image in images] == [("001", "train"), ("000", "val")]
        for image, mask in zip(images, reversed(masks), strict=True):
            assert np.array_equal(image.mask(), mask)
            assert image.pixels().shape == (*mask.shape, 3)
    with pytest.raises(FileNotFoundError, match=r"voc2012_det_seg_192.* or the official .* with ImageSets/Segmentation"):
        read_segmentation(tmp_path)


def test_rejects_a_mask_in_colours(tmp_path):
    folder = tmp_path / "VOC2012"
    (folder / "SegmentationClass").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(folder / "SegmentationClass" / "000.png")
    write_list(folder / "ImageSets" / "Segmentation" / "train.txt", ["000"])
    write_list(folder / "ImageSets" / "Segmentation" / "val.txt", [])
    with pytest.raises(ValueError, match="mode RGB, expected a palette"):
        read_segmentation(tmp_path)[0].mask()


def test_images_are_chosen_by_the_size_of_their_object():
    masks = np.zeros((4, 10, 10), np.uint8)
    masks[0, :, :9] = 1  # 90% of the image
    masks[1, :3] = 1
    masks[2, :3] = 1
    masks[3, 0, 0] = 1  # 1%
    images = ObjectImages(torch.zeros(4, 1, 2, 2), torch.zeros(4), np.array(["val", "val", "train", "val"]), masks)
    assert images.choose(5).tolist() == [1]


# --- the experiment -----------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path) -> Path:
    """Images of noise, with one object each but for one image with two, and a network of random weights."""
    folder, rng = tmp_path / "data", np.random.default_rng(0)
    write_weights(folder / SQUEEZENET, squeezenet_weights(0))
    masks = [object_mask(1 + number % 3, 40, 40 + number) for number in range(16)]
    masks[5][-1, -1] = 9
    write_packed(folder, masks, ["train", "val"] * 8)
    path = folder / "stl10_train3996_96" / "stl10_train3996_96.npz"
    path.parent.mkdir()
    images = as_jpeg([rng.integers(0, 256, (96, 96, 3), np.uint8) for _ in range(10)])
    np.savez(path, **images, labels=np.arange(10, dtype=np.uint8))
    return folder


def test_images_with_two_classes_are_left_out(data, tmp_path):
    runner = Runner(Journal(tmp_path / "runs.jsonl"), Files(data, tmp_path / "cache"), jobs=1, show=silent)
    make_object_images(runner, 64)
    images = read_object_images(runner.files, 64)
    assert len(images.labels) == 15
    assert images.activations.dtype == torch.float16
    assert images.activations.min() >= 0
    assert images.masks.shape == (15, MASK_SIDE, MASK_SIDE)
    # First the images for training, of odd numbers of the classes: 000, 002, 004, ...
    assert images.labels[:4].tolist() == [0, 2, 1, 0]
    shown, known = images.shown(0)
    assert shown[: MASK_SIDE // 2, : MASK_SIDE // 2].all()
    assert not known.all()


def test_the_experiment_runs_from_end_to_end(data, tmp_path, monkeypatch):
    monkeypatch.setattr(nmf, "CHANNELS", (20, 24))
    monkeypatch.setattr(nmf, "MEASURED_CHANNELS", (20,))
    monkeypatch.setattr(nmf, "PENALTIES", {"none": (0.0,), "LP": (0.5,), "energy": (1.0,)})
    runner = Runner(Journal(tmp_path / "runs.jsonl"), Files(data, tmp_path / "cache"), jobs=1, show=silent)
    experiment = nmf.NMF(side=64, looked_at=2, measured=3, examined=2, iterations=2)
    results = experiment.run(runner, 2)
    assert [len(results[part]) for part in ("images", "heat maps", "measured", "training")] == [2, 8, 3, 6]
    with Image.open(io.BytesIO(base64.b64decode(results["images"][0]))) as image:
        assert image.size == (96, 96)
    for record in results["heat maps"]:
        assert len(record["maps"]) == record["rank"]
        assert 0 <= record["explained sum"] <= 1
        assert record["energy of updates"] >= record["explained energy"] - 1e-3
    for record in results["training"]:
        assert 0 <= record["residual"] <= 1
        assert 0 < record["LP map, inside"] <= 1
    page = experiment.make_page(results)
    assert set(page.figures) == {"nmf", "nmf-training"}
    assert "| 24 | 2 |" in page.text
    assert "| no penalty |" in page.text
    assert "24 channels in" in page.verdict
    assert all(len(render_svg(figure)) < 500_000 for figure in page.figures.values())
