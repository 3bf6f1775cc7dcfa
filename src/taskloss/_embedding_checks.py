"""Checks of embeddings, labels and galleries, and of the criterion of a chunked loss."""

from __future__ import annotations

from typing import Any

import torch

from taskloss import _checks


def check_embeddings(name: str, embeddings: Any) -> None:
    """Check that embeddings are finite points, one per row."""
    if not isinstance(embeddings, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(embeddings).__name__}; use torch.as_tensor({name})")
    if not embeddings.dtype.is_floating_point:
        raise TypeError(f"{name} must be floating point, got {embeddings.dtype}; are embeddings and labels swapped?")
    if embeddings.ndim != 2:
        raise ValueError(
            f"{name} has shape {tuple(embeddings.shape)}; expected one row per item, shape (n, d). Try {name}.flatten(1)"
        )
    finite = torch.isfinite(embeddings.detach()).all(1)
    if not finite.all():
        bad = ~finite
        raise ValueError(
            f"{name}[{int(bad.int().argmax())}] is not finite ({int(bad.sum())} of {len(bad)} rows are not). Lower the learning "
            "rate or clip gradients if training diverged"
        )


def check_gallery(embeddings: Any, gallery: Any, gallery_labels: Any) -> None:
    """Check the queries, and that a gallery comes with labels, in the same space and on the same device."""
    check_embeddings("embeddings", embeddings)
    if (gallery is None) != (gallery_labels is None):
        given, missing = ("gallery_labels", "gallery") if gallery is None else ("gallery", "gallery_labels")
        raise ValueError(
            f"{given} is given without {missing}; pass both to search a gallery, or neither to search among the queries"
        )
    if gallery is None:
        return
    if isinstance(gallery, torch.Tensor) and gallery.device != embeddings.device:
        raise ValueError(
            f"embeddings is on {embeddings.device} and gallery is on {gallery.device}; pass gallery.to(embeddings.device)"
        )
    check_embeddings("gallery", gallery)
    if gallery.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"embeddings has {embeddings.shape[1]} columns and gallery has {gallery.shape[1]}; expected the same: embed both "
            "with one network"
        )


def as_labels(name: str, labels: Any, rows: int) -> torch.Tensor:
    """Return one integer class per row, as int64."""
    tensor = _checks.as_optional_tensor(name, labels)
    if tensor is None or tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        given = "None" if tensor is None else str(tensor.dtype)
        raise TypeError(f"{name} must be integers, got {given}; number your classes: numpy.unique(names, return_inverse=True)[1]")
    if tensor.shape != (rows,):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}, but there are {rows} embeddings; expected one label each, shape ({rows},)"
        )
    return tensor.to(torch.int64)


def check_mean_reduction(criterion: Any) -> None:
    """Check that a criterion can be called, reduces by the mean and needs no other process."""
    if not callable(criterion):
        raise TypeError(
            f"criterion must be a loss, got {type(criterion).__name__}; e.g. taskloss.DirectLoss('average_precision')"
        )
    settings = getattr(criterion, "settings", None)
    reduction = settings.get("reduction", "mean") if isinstance(settings, dict) else "mean"
    if reduction != "mean":
        raise ValueError(
            f"the criterion has reduction={reduction!r}, but the chunked loss is a mean over queries; leave reduction out, or "
            "call the criterion on retrieval_rankings(...)"
        )
    if isinstance(settings, dict) and (settings.get("sync") or settings.get("process_group") is not None):
        raise ValueError(
            "the criterion runs over several processes, but the chunked loss calls it once per chunk of queries, and the ranks "
            "may have different numbers of chunks; leave out sync= and process_group=, or call the criterion on "
            "retrieval_rankings(...)"
        )
