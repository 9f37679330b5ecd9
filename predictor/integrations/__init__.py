"""The predicted time before a training starts, then the measured one: one line in a script.

| training code | line |
|---|---|
| PyTorch Lightning | ``Trainer(callbacks=[lightning.PrecisionTimeCallback("resnet50")])`` |
| Hugging Face Trainer | ``Trainer(callbacks=[huggingface.PrecisionTimeCallback()])`` |
| DeepSpeed engine | ``deepspeed.follow(engine, model="bert-large", steps=7038)`` |
| any other loop | ``for batch in TrainingLoop(model="resnet50", ...).over(loader):`` |

Nothing here raises into a training, waits for a GPU, or imports a framework by itself.
"""

from __future__ import annotations

from .follower import TrainingLoop

__all__ = ["TrainingLoop"]
