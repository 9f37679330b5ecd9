"""One rank of a training with DeepSpeed on the CPU: the script that the test starts."""

from __future__ import annotations

import json
import sys

import deepspeed
import torch

from predictor.integrations import deepspeed as precision_time

config = json.loads(sys.argv[1])
deepspeed.init_distributed("gloo")
network = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(
    model=network, model_parameters=network.parameters(), config=config
)
follower = precision_time.follow(engine, model="resnet50", gpu="a100-sxm4-80gb", steps=40)
dtype = next(engine.module.parameters()).dtype
for _ in range(40 * config["gradient_accumulation_steps"]):
    loss = engine(torch.randn(config["train_micro_batch_size_per_gpu"], 4, dtype=dtype))
    engine.backward(loss.float().mean())
    engine.step()
engine.save_checkpoint("checkpoint")
follower.end()
torch.distributed.destroy_process_group()
