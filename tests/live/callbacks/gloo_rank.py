"""One rank of a training over gloo: the script that the test starts twice."""

from __future__ import annotations

import torch
from torch import distributed

from predictor.integrations import TrainingLoop

distributed.init_process_group("gloo")
weight = torch.zeros(8)
for _ in TrainingLoop(model="resnet50", steps=40).over(range(40)):
    distributed.all_reduce(weight)
distributed.destroy_process_group()
