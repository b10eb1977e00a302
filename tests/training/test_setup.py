"""Where training begins."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import replace

import pytest

from segue.batches.codec import BodySpec, Sizes
from segue.models.names import recipe_names
from segue.models.network import on_meta
from segue.recipe import load_recipe

FAULTS = """
import resource
import torch
from segue.training.device import keep_memory
torch.set_num_threads(1)

def faults():
    for step in range(15):
        if step == 5:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [torch.zeros(5_000_000) for _ in range(4)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

as_it_is = faults()
keep_memory()
print(faults(), as_it_is)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_freed_memory_is_kept_for_the_next_step() -> None:
    """Ten steps, each with four blocks of 20 MB: asked for anew, a block is 4,883 pages to be handed out."""
    large = {"MALLOC_MMAP_THRESHOLD_": "131072"}  # else the threshold moves, and blocks are kept by luck
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | large)
    kept, as_it_is = map(int, done.stdout.split())
    assert kept < 200 < as_it_is


@pytest.mark.parametrize("name", [name for name in recipe_names() if not hasattr(load_recipe(name).model_class, "fit")])
def test_every_network_can_be_laid_out_without_its_numbers(name: str) -> None:
    recipe, sizes = load_recipe(name), Sizes(20, 3)
    if recipe.model_class.framed:
        sizes = replace(sizes, body=BodySpec("gpt", {}, Sizes(20)), window=16)
    laid = on_meta(lambda: recipe.model_class(recipe.model, sizes))
    assert {weight.device.type for weight in laid.parameters()} == {"meta"}
