"""Networks of libraries as ``record_graphs`` makes them: module, inputs and what the side means.

``timm`` and ``torchvision`` name their classifiers. Of ``ultralytics``, ``transformers`` and
``diffusers`` the networks stand here with the sizes their authors publish; nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

IMAGE_SIZE = 224  # of networks whose library names none
CROP = 480  # of torchvision's reference training of segmentation
TEXT = 77  # tokens of CLIP's text
PROMPT = 512  # tokens of T5's text in FLUX


Inputs = Callable[[int, int], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Network:
    """How a network is made and fed.

    ``make`` takes the side; ``sized`` says whether it makes another network for another one.
    ``side`` is what it is trained with.
    ``inputs`` takes the batch and the side: pixels of an image, or tokens of ``text``.
    """

    make: Callable[[int], torch.nn.Module]
    inputs: Inputs
    side: int
    sized: bool = False


def pixels(batch: int, side: int, name: str = "x") -> dict[str, torch.Tensor]:
    """Square images of three channels."""
    return {name: torch.empty(batch, 3, side, side)}


def images(batch: int, side: int) -> dict[str, torch.Tensor]:
    """Such images as transformers names them."""
    return pixels(batch, side, "pixel_values")


def tokens(batch: int, length: int, name: str = "input_ids") -> dict[str, torch.Tensor]:
    """Tokens of a text."""
    return {name: torch.empty(batch, length, dtype=torch.long)}


def network(library: str, model: str, arguments: Mapping[str, Any]) -> Network:
    """A network of a library by its name there, with arguments of its own."""
    return _LIBRARIES[library](model, arguments)


def _timm(model: str, arguments: Mapping[str, Any]) -> Network:
    timm = import_module("timm")
    side = timm.get_pretrained_cfg(model).input_size[-1]
    sized = True
    try:
        with torch.device("meta"):
            timm.create_model(model, **arguments, img_size=side)
    except TypeError:
        sized = False
    except (NotImplementedError, RuntimeError):
        pass  # a constructor that looks at values

    def make(side: int) -> torch.nn.Module:
        own = {"img_size": side} if sized else {}
        made: torch.nn.Module = timm.create_model(model, **arguments, **own)
        return made

    return Network(make, pixels, side, sized)


def _torchvision(model: str, arguments: Mapping[str, Any]) -> Network:
    models = import_module("torchvision").models
    if model in models.list_models(module=models.segmentation):
        arguments = {"weights_backbone": None, "num_classes": 21, "aux_loss": True, **arguments}
        side = CROP
    else:
        side = IMAGE_SIZE
    return Network(lambda _: models.get_model(model, weights=None, **arguments), pixels, side)


# Tasks of ultralytics by the end of a name: its class, the classes of its weights, their side.
_TASKS = {
    "seg": ("SegmentationModel", 80, 640),
    "pose": ("PoseModel", 1, 640),
    "obb": ("OBBModel", 15, 1024),
    "cls": ("ClassificationModel", 1000, 224),
}


def _ultralytics(model: str, arguments: Mapping[str, Any]) -> Network:
    """Detectors of 80 classes; ``yolov5`` without a ``u`` has the anchors of its own repository."""
    anchored = model.startswith("yolov5") and not model.endswith("u")
    made, classes, side = _TASKS.get(model.partition("-")[2], ("DetectionModel", 80, 640))

    def make(_: int) -> torch.nn.Module:
        tasks = import_module("ultralytics.nn.tasks")
        name = f"{model.removesuffix('u')}.yaml"
        found: torch.nn.Module = getattr(tasks, made)(name, nc=classes, verbose=False)
        if anchored:
            layers: Any = found.model
            head = layers[-1]
            widths = [branch[0].conv.in_channels for branch in head.cv2]
            maps = _Maps(widths, 3 * 85)
            maps.f, maps.i = head.f, head.i
            layers[-1] = maps
        return found

    return Network(make, pixels, side)


class _Maps(torch.nn.Module):
    """Detection head of YOLOv5 and before: a 1x1 convolution for each scale."""

    f: Any
    i: Any

    def __init__(self, widths: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.m = torch.nn.ModuleList(torch.nn.Conv2d(width, outputs, 1) for width in widths)

    def forward(self, x: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The maps of the scales."""
        return [conv(one) for conv, one in zip(self.m, x, strict=True)]


# CLIP: (width, layers, heads, patch) of the images, (width, heads) of the texts, projection, GELU.
_CLIP = {
    "clip-vit-base-patch32": ((768, 12, 12, 32), (512, 12, 8), 512, 224, "quick_gelu"),
    "clip-vit-base-patch16": ((768, 12, 12, 16), (512, 12, 8), 512, 224, "quick_gelu"),
    "clip-vit-large-patch14": ((1024, 24, 16, 14), (768, 12, 12), 768, 224, "quick_gelu"),
    "clip-vit-large-patch14-336": ((1024, 24, 16, 14), (768, 12, 12), 768, 336, "quick_gelu"),
    "CLIP-ViT-H-14-laion2B-s32B-b79K": ((1280, 32, 16, 14), (1024, 24, 16), 1024, 224, "gelu"),
    "CLIP-ViT-bigG-14-laion2B-39B-b160k": ((1664, 48, 16, 14), (1280, 32, 20), 1280, 224, "gelu"),
}
# Whisper: width, layers of the encoder and of the decoder, heads, mel bins, words.
_WHISPER = {
    "whisper-tiny": (384, 4, 4, 6, 80, 51865),
    "whisper-base": (512, 6, 6, 8, 80, 51865),
    "whisper-small": (768, 12, 12, 12, 80, 51865),
    "whisper-medium": (1024, 24, 24, 16, 80, 51865),
    "whisper-large-v2": (1280, 32, 32, 20, 80, 51865),
    "whisper-large-v3": (1280, 32, 32, 20, 128, 51866),
    "whisper-large-v3-turbo": (1280, 32, 4, 20, 128, 51866),
    "distil-large-v3": (1280, 32, 2, 20, 128, 51866),
}
# ESM-2: layers, width, heads.
_ESM = {
    "esm2_t6_8M_UR50D": (6, 320, 20),
    "esm2_t12_35M_UR50D": (12, 480, 20),
    "esm2_t30_150M_UR50D": (30, 640, 20),
    "esm2_t33_650M_UR50D": (33, 1280, 20),
    "esm2_t36_3B_UR50D": (36, 2560, 40),
    "esm2_t48_15B_UR50D": (48, 5120, 40),
}
# Mask2Former on Swin: width, depths, heads, window.
_MASK2FORMER = {
    "mask2former-swin-tiny": (96, (2, 2, 6, 2), (3, 6, 12, 24), 7),
    "mask2former-swin-small": (96, (2, 2, 18, 2), (3, 6, 12, 24), 7),
    "mask2former-swin-base": (128, (2, 2, 18, 2), (4, 8, 16, 32), 12),
    "mask2former-swin-large": (192, (2, 2, 18, 2), (6, 12, 24, 48), 12),
}
# SegFormer: widths, depths, width of the decoder.
_SEGFORMER = {
    "segformer-b0": ((32, 64, 160, 256), (2, 2, 2, 2), 256),
    "segformer-b1": ((64, 128, 320, 512), (2, 2, 2, 2), 256),
    "segformer-b2": ((64, 128, 320, 512), (3, 4, 6, 3), 768),
    "segformer-b3": ((64, 128, 320, 512), (3, 4, 18, 3), 768),
    "segformer-b4": ((64, 128, 320, 512), (3, 8, 27, 3), 768),
    "segformer-b5": ((64, 128, 320, 512), (3, 6, 40, 3), 768),
}
_DETR = {"detr-resnet-50": "resnet50", "detr-resnet-101": "resnet101"}
# RT-DETR: blocks of the backbone, layers of the decoder, width of the encoder, its expansion.
_RTDETR = {
    "rtdetr_r18vd": ((2, 2, 2, 2), 3, 256, 0.5),
    "rtdetr_r34vd": ((3, 4, 6, 3), 4, 256, 0.5),
    "rtdetr_r50vd": ((3, 4, 6, 3), 6, 256, 1.0),
    "rtdetr_r101vd": ((3, 4, 23, 3), 6, 384, 1.0),
}
# Segment Anything: width, layers, heads, layers that attend to the whole image.
_SAM = {
    "sam-vit-base": (768, 12, 12, (2, 5, 8, 11)),
    "sam-vit-large": (1024, 24, 16, (5, 11, 17, 23)),
    "sam-vit-huge": (1280, 32, 16, (7, 15, 23, 31)),
}
# SigLIP: (width, width of the MLP, layers, heads) of both towers, patch, side, words.
_SIGLIP = {
    "siglip-base-patch16-224": ((768, 3072, 12, 12), 16, 224, 32000),
    "siglip-large-patch16-256": ((1024, 4096, 24, 16), 16, 256, 32000),
    "siglip-so400m-patch14-384": ((1152, 4304, 27, 16), 14, 384, 32000),
    "siglip2-base-patch16-224": ((768, 3072, 12, 12), 16, 224, 256000),
    "siglip2-so400m-patch14-384": ((1152, 4304, 27, 16), 14, 384, 256000),
}
# DINOv2 that classifies: width, layers, heads.
_DINOV2 = {
    "dinov2-small": (384, 12, 6),
    "dinov2-base": (768, 12, 12),
    "dinov2-large": (1024, 24, 16),
    "dinov2-giant": (1536, 40, 24),
}
# Depth Anything on DINOv2: (width, layers, heads), widths of stages, of what is fused.
_DEPTH_ANYTHING = {
    "depth-anything-small": ((384, 12, 6), (48, 96, 192, 384), 64),
    "depth-anything-base": ((768, 12, 12), (96, 192, 384, 768), 128),
    "depth-anything-large": ((1024, 24, 16), (256, 512, 1024, 1024), 256),
}
# VideoMAE that classifies 16 pictures: width, layers, heads.
_VIDEOMAE = {
    "videomae-base": (768, 12, 12),
    "videomae-large": (1024, 24, 16),
    "videomae-huge": (1280, 32, 16),
}
# MAE's pretraining, which encodes a quarter of the patches: width, layers, heads, side of a patch.
_MAE = {
    "vit-mae-base": (768, 12, 12, 16),
    "vit-mae-large": (1024, 24, 16, 16),
    "vit-mae-huge": (1280, 32, 16, 14),
}
# WavLM with CTC: width, layers, heads, norms of the large one.
_WAVLM = {"wavlm-base": (768, 12, 12, False), "wavlm-large": (1024, 24, 16, True)}
# ALBERT: width, layers, heads, width of the MLP.
_ALBERT = {
    "albert-base-v2": (768, 12, 12, 3072),
    "albert-large-v2": (1024, 24, 16, 4096),
    "albert-xlarge-v2": (2048, 24, 16, 8192),
    "albert-xxlarge-v2": (4096, 12, 64, 16384),
}
_WINDOWED, _WHOLE = "sliding_attention", "full_attention"
# Text of Gemma 4: width, layers, heads, of keys, width of the MLP, layers with a window in a row.
_GEMMA4: Mapping[str, tuple[tuple[int, int, int, int, int, int], Mapping[str, Any]]] = {
    "gemma-4-E2B": (
        (1536, 35, 8, 1, 6144, 4),
        {"num_kv_shared_layers": 20, "use_double_wide_mlp": True},
    ),
    "gemma-4-E4B": ((2560, 42, 8, 2, 10240, 5), {"num_kv_shared_layers": 18}),
    "gemma-4-31B": (
        (5376, 60, 32, 16, 21504, 5),
        {
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 4,
            "hidden_size_per_layer_input": 0,
        },
    ),
}
# ELECTRA's discriminator that classifies: width of the words, of the layers, layers, heads.
_ELECTRA = {
    "electra-small-discriminator": (128, 256, 12, 4),
    "electra-base-discriminator": (768, 768, 12, 12),
    "electra-large-discriminator": (1024, 1024, 24, 16),
}
# XLNet that classifies: width, layers, heads.
_XLNET = {"xlnet-base-cased": (768, 12, 12), "xlnet-large-cased": (1024, 24, 16)}
# LayoutLMv3 that labels words: width, layers, heads, size of a position in the page.
_LAYOUTLM = {
    "layoutlmv3-base": (768, 12, 12, 128),
    "layoutlmv3-large": (1024, 24, 16, 171),
}
# Segment Anything 2: width, layers of the stages, heads, those that attend to the whole image.
_SAM2 = {
    "sam2-hiera-tiny": (96, (1, 2, 7, 2), 1, (5, 7, 9)),
    "sam2-hiera-small": (96, (1, 2, 11, 2), 1, (7, 10, 13)),
    "sam2-hiera-base-plus": (112, (2, 3, 16, 3), 2, (12, 16, 20)),
    "sam2-hiera-large": (144, (2, 6, 36, 4), 2, (23, 33, 43)),
}
# TrOCR: width, layers and heads of the encoder.
_TROCR = {"trocr-base": (768, 12, 12), "trocr-large": (1024, 24, 16)}
# YOLOS of 12 layers: width, heads, size of its positions, whether each layer has some.
_YOLOS = {
    "yolos-tiny": (192, 3, (800, 1333), False),
    "yolos-small": (384, 6, (512, 864), True),
    "yolos-base": (768, 12, (800, 1344), True),
}
# Nucleotide Transformer: layers, width.
_NUCLEOTIDE = {
    "nucleotide-transformer-500m": (24, 1280),
    "nucleotide-transformer-2.5b": (32, 2560),
}
_PARAKEET = {"parakeet-ctc-0.6b": 24, "parakeet-ctc-1.1b": 42}  # layers
# Wan 2.1 from a text: layers, heads, width of the MLP.
_WAN = {"Wan2.1-T2V-1.3B": (30, 12, 8960), "Wan2.1-T2V-14B": (40, 40, 13824)}
_COGVIDEO = {"CogVideoX-2b": (30, 30), "CogVideoX-5b": (42, 48)}  # layers, heads
# ModernBERT: width, width of the GeGLU, layers, heads.
_MODERNBERT = {
    "ModernBERT-base": (768, 1152, 22, 12),
    "ModernBERT-large": (1024, 2624, 28, 16),
}


def _transformers(model: str, arguments: Mapping[str, Any]) -> Network:
    library = import_module("transformers")
    return _OF_TRANSFORMERS[model](library, model)


def _sizes(width: int, layers: int, heads: int, wide: int) -> dict[str, int]:
    """The sizes of an encoder as transformers names them."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": wide,
    }


def _scored(
    library: Any, name: str, head: str, inputs: Inputs, side: int, **settings: Any
) -> Network:
    """A network of one configuration, of any side, whose loss is taken of its scores."""
    config = getattr(library, f"{name}Config")(**settings)
    return Network(lambda _: _Logits(getattr(library, name + head)(config)), inputs, side)


def _clip(library: Any, model: str) -> Network:
    (width, layers, heads, patch), (narrow, depth, groups), shared, side, act = _CLIP[model]
    text = {
        "hidden_size": narrow,
        "intermediate_size": 4 * narrow,
        "num_hidden_layers": depth,
        "num_attention_heads": groups,
        "hidden_act": act,
    }

    def make(side: int) -> torch.nn.Module:
        vision = {
            "hidden_size": width,
            "intermediate_size": 8192 if width == 1664 else 4 * width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "patch_size": patch,
            "image_size": side,
            "hidden_act": act,
        }
        config = library.CLIPConfig(text_config=text, vision_config=vision, projection_dim=shared)
        return _Contrast(library.CLIPModel(config))

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return images(batch, side) | tokens(batch, TEXT)

    return Network(make, inputs, side, sized=True)


class _Contrast(torch.nn.Module):
    """Both towers up to the space they share; the scores of all pairs are the batch's square."""

    def __init__(self, towers: torch.nn.Module) -> None:
        super().__init__()
        self.towers = towers

    def forward(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """Images and texts in the space they share."""
        towers: Any = self.towers
        images = towers.get_image_features(pixel_values=inputs["pixel_values"])
        texts = towers.get_text_features(input_ids=inputs["input_ids"])
        return [getattr(one, "pooler_output", one) for one in (images, texts)]


def _siglip(library: Any, model: str) -> Network:
    (width, wide, layers, heads), patch, side, words = _SIGLIP[model]
    tower = _sizes(width, layers, heads, wide)

    def make(side: int) -> torch.nn.Module:
        config = library.SiglipConfig(
            text_config={**tower, "vocab_size": words, "projection_size": width},
            vision_config={**tower, "patch_size": patch, "image_size": side},
        )
        return _Contrast(library.SiglipModel(config))

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return images(batch, side) | tokens(batch, 64)

    return Network(make, inputs, side, sized=True)


def _dinov2(library: Any, model: str) -> Network:
    def make(side: int) -> torch.nn.Module:
        backbone = _of_dinov2(_DINOV2[model], side)
        config = library.Dinov2Config(**backbone, num_labels=1000)
        return _Logits(library.Dinov2ForImageClassification(config))

    return Network(make, images, 224, sized=True)


def _of_dinov2(sizes: Sequence[int], side: int) -> dict[str, Any]:
    width, layers, heads = sizes
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "use_swiglu_ffn": width == 1536,
        "patch_size": 14,
        "image_size": side,
    }


def _depth_anything(library: Any, model: str) -> Network:
    sizes, widths, fused = _DEPTH_ANYTHING[model]

    def make(side: int) -> torch.nn.Module:
        stages = [sizes[1] - 3, sizes[1] - 2, sizes[1] - 1, sizes[1]]
        backbone = library.Dinov2Config(
            **_of_dinov2(sizes, side), out_indices=stages, reshape_hidden_states=False
        )
        config = library.DepthAnythingConfig(
            backbone_config=backbone,
            reassemble_hidden_size=sizes[0],
            neck_hidden_sizes=list(widths),
            fusion_hidden_size=fused,
        )
        return _Depth(library.DepthAnythingForDepthEstimation(config))

    return Network(make, images, 518, sized=True)


def _videomae(library: Any, model: str) -> Network:
    width, layers, heads = _VIDEOMAE[model]

    def make(side: int) -> torch.nn.Module:
        config = library.VideoMAEConfig(
            **_sizes(width, layers, heads, 4 * width), image_size=side, num_labels=400
        )
        return _Logits(library.VideoMAEForVideoClassification(config))

    return Network(make, lambda batch, side: _pictures(batch, 16, side), 224, sized=True)


def _timesformer(library: Any, _: str) -> Network:
    def make(side: int) -> torch.nn.Module:
        config = library.TimesformerConfig(image_size=side, num_labels=400)
        return _Logits(library.TimesformerForVideoClassification(config))

    return Network(make, lambda batch, side: _pictures(batch, 8, side), 224, sized=True)


def _pictures(batch: int, count: int, side: int) -> Mapping[str, torch.Tensor]:
    """Pictures of a video."""
    return {"pixel_values": torch.empty(batch, count, 3, side, side)}


def _mae(library: Any, model: str) -> Network:
    width, layers, heads, patch = _MAE[model]

    def make(side: int) -> torch.nn.Module:
        sizes = _sizes(width, layers, heads, 4 * width)
        config = library.ViTMAEConfig(**sizes, image_size=side, patch_size=patch)
        return _Logits(library.ViTMAEForPreTraining(config))

    return Network(make, images, 224, sized=True)


def _wavlm(library: Any, model: str) -> Network:
    width, layers, heads, large = _WAVLM[model]
    config = library.WavLMConfig(
        **_sizes(width, layers, heads, 4 * width),
        vocab_size=32,
        feat_extract_norm="layer" if large else "group",
        do_stable_layer_norm=large,
        layerdrop=0.0,
        mask_time_prob=0.0,
    )

    def inputs(batch: int, length: int) -> Mapping[str, torch.Tensor]:
        return {"input_values": torch.empty(batch, length)}

    return Network(lambda _: _Logits(library.WavLMForCTC(config)), inputs, 160_000)


def _w2v_bert(library: Any, _: str) -> Network:
    config = library.Wav2Vec2BertConfig(vocab_size=32, layerdrop=0.0, mask_time_prob=0.0)

    def inputs(batch: int, length: int) -> Mapping[str, torch.Tensor]:
        return {"input_features": torch.empty(batch, length, 160)}

    return Network(lambda _: _Logits(library.Wav2Vec2BertForCTC(config)), inputs, 500)


def _spectrogram(library: Any, _: str) -> Network:
    def make(length: int) -> torch.nn.Module:
        config = library.ASTConfig(max_length=length, num_labels=527)
        return _Logits(library.ASTForAudioClassification(config))

    def inputs(batch: int, length: int) -> Mapping[str, torch.Tensor]:
        return {"input_values": torch.empty(batch, length, 128)}

    return Network(make, inputs, 1024, sized=True)


def _positioned(batch: int, length: int) -> Mapping[str, torch.Tensor]:
    """Tokens with positions and segments, of texts longer than those that the network has."""
    positions = tokens(1, length, "position_ids")
    return tokens(batch, length) | tokens(batch, length, "token_type_ids") | positions


def _albert(library: Any, model: str) -> Network:
    width, layers, heads, wide = _ALBERT[model]
    sizes = _sizes(width, layers, heads, wide)
    return _scored(library, "Albert", "ForMaskedLM", _positioned, 512, **sizes)


def _gemma4(library: Any, model: str) -> Network:
    (width, layers, heads, keys, wide, windows), more = _GEMMA4[model]
    each = [_WINDOWED] * windows + [_WHOLE]
    config = library.Gemma4TextConfig(
        **_sizes(width, layers, heads, wide),
        **more,
        num_key_value_heads=keys,
        head_dim=256,
        layer_types=each * (layers // len(each)),
        final_logit_softcapping=30.0,
        use_cache=False,
    )
    return Network(_unpacked(lambda: library.Gemma4ForCausalLM(config)), tokens, 2048)


def _gemma3n(library: Any, model: str) -> Network:
    small: dict[str, Any] = {
        "num_hidden_layers": 30,
        "intermediate_size": 8192,
        "num_kv_shared_layers": 10,
    }
    small["activation_sparsity_pattern"] = [0.95] * 10 + [0.0] * 20
    small["layer_types"] = ([_WINDOWED] * 4 + [_WHOLE]) * 6
    torch.distributions.Distribution.set_default_validate_args(False)  # looks at values
    config = library.Gemma3nTextConfig(**(small if "E2B" in model else {}), use_cache=False)
    return Network(_unpacked(lambda: library.Gemma3nForCausalLM(config)), tokens, 2048)


def _electra(library: Any, model: str) -> Network:
    words, width, layers, heads = _ELECTRA[model]
    sizes = _sizes(width, layers, heads, 4 * width) | {"embedding_size": words}
    return _scored(library, "Electra", "ForSequenceClassification", _positioned, 512, **sizes)


def _xlnet(library: Any, model: str) -> Network:
    width, layers, heads = _XLNET[model]
    sizes = {"d_model": width, "n_layer": layers, "n_head": heads, "d_inner": 4 * width}
    return _scored(library, "XLNet", "ForSequenceClassification", tokens, 512, **sizes)


def _layoutlm(library: Any, model: str) -> Network:
    width, layers, heads, part = _LAYOUTLM[model]
    boxes = {"coordinate_size": part, "shape_size": part if width == 768 else 170}
    config = library.LayoutLMv3Config(**_sizes(width, layers, heads, 4 * width), **boxes)

    def inputs(batch: int, length: int) -> Mapping[str, torch.Tensor]:
        places = torch.empty(batch, length, 4, dtype=torch.long)
        words = tokens(batch, length) | tokens(batch, length, "position_ids")
        return words | {"bbox": places} | images(batch, 224)

    return Network(lambda _: _Words(library.LayoutLMv3ForTokenClassification(config)), inputs, 512)


def _mpnet(library: Any, _: str) -> Network:
    sizes = {"vocab_size": 30527, "max_position_embeddings": 514}
    return _scored(library, "MPNet", "ForMaskedLM", tokens, 512, **sizes)


def _mobilebert(library: Any, _: str) -> Network:
    return _scored(library, "MobileBert", "ForMaskedLM", _positioned, 512)


def _trocr(library: Any, model: str) -> Network:
    width, layers, heads = _TROCR[model]
    encoder = library.ViTConfig(image_size=384, **_sizes(width, layers, heads, 4 * width))
    decoder = library.TrOCRConfig(cross_attention_hidden_size=width, use_cache=False)
    config = library.VisionEncoderDecoderConfig(
        encoder=encoder.to_dict(), decoder=decoder.to_dict()
    )

    def inputs(batch: int, length: int) -> Mapping[str, torch.Tensor]:
        return images(batch, 384) | tokens(batch, length, "decoder_input_ids")

    return Network(lambda _: _Logits(library.VisionEncoderDecoderModel(config)), inputs, 128)


def _yolos(library: Any, model: str) -> Network:
    width, heads, positions, each = _YOLOS[model]
    config = library.YolosConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=list(positions),
        use_mid_position_embeddings=each,
        num_labels=91,
    )

    return Network(lambda _: _Boxes(library.YolosForObjectDetection(config)), images, 928)


def _nucleotide(library: Any, model: str) -> Network:
    layers, width = _NUCLEOTIDE[model]
    own: dict[str, Any] = {"vocab_size": 4105, "mask_token_id": 2, "max_position_embeddings": 1002}
    own |= {"position_embedding_type": "absolute"}
    return _of_esm(library, 1000, _sizes(width, layers, 20, 4 * width) | own)


def _whisper(library: Any, model: str) -> Network:
    width, encoder, decoder, heads, mels, words = _WHISPER[model]
    config = library.WhisperConfig(
        vocab_size=words,
        num_mel_bins=mels,
        d_model=width,
        encoder_layers=encoder,
        decoder_layers=decoder,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        use_cache=False,
    )

    def inputs(batch: int, length: int) -> Mapping[str, torch.Tensor]:
        sound = {"input_features": torch.empty(batch, mels, 3000)}
        return sound | tokens(batch, length, "decoder_input_ids")

    made = _unpacked(lambda: library.WhisperForConditionalGeneration(config))
    return Network(made, inputs, 448)


def _esm(library: Any, model: str) -> Network:
    layers, width, heads = _ESM[model]
    own: dict[str, Any] = {"vocab_size": 33, "mask_token_id": 32, "max_position_embeddings": 1026}
    own |= {"position_embedding_type": "rotary", "token_dropout": True, "layer_norm_eps": 1e-5}
    return _of_esm(library, 1024, _sizes(width, layers, heads, 4 * width) | own)


def _of_esm(library: Any, length: int, own: Mapping[str, Any]) -> Network:
    off = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    plain = {"pad_token_id": 1, "emb_layer_norm_before": False, **off}
    return _scored(library, "Esm", "ForMaskedLM", tokens, length, **plain, **own)


class _Around(torch.nn.Module):
    """A network, to answer what its losses are taken of."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner


class _Logits(_Around):
    """The scores alone, without what a network gives beside them."""

    def train(self, mode: bool = True) -> _Logits:
        """Without the layers that Whisper leaves out by chance, with a probability of 0."""
        super().train(mode)
        for part in self.modules():
            if hasattr(part, "layerdrop"):
                part.training = False
        return self

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Scores of the words at every position."""
        found: torch.Tensor = self.inner(**inputs).logits
        return found


class _Words(_Logits):
    """The scores of words that stand in an image."""

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Scores of the labels of every word."""
        with _masked():
            return super().forward(**inputs)


def _modernbert(library: Any, model: str) -> Network:
    width, wide, layers, heads = _MODERNBERT[model]
    sizes = _sizes(width, layers, heads, wide)
    return _scored(library, "ModernBert", "ForMaskedLM", tokens, 1024, **sizes)


def _mask2former(library: Any, model: str) -> Network:
    width, depths, heads, window = _MASK2FORMER[model]
    backbone = library.SwinConfig(
        image_size=384 if window == 12 else 224,
        embed_dim=width,
        depths=list(depths),
        num_heads=list(heads),
        window_size=window,
        drop_path_rate=0.3,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = library.Mask2FormerConfig(backbone_config=backbone, num_labels=80)

    return Network(
        lambda _: _Masks(library.Mask2FormerForUniversalSegmentation(config)), images, 1024
    )


def _finite() -> Any:
    """Let a network ask whether its activations are finite: a meta tensor has no values."""
    return patch.object(torch, "isfinite", lambda _: np.array(True))


def _unpacked(make: Callable[[], torch.nn.Module]) -> Callable[[int], torch.nn.Module]:
    """A network that looks for several texts in one row by their values, which has no values."""

    def made(_: int) -> torch.nn.Module:
        masks: Any = import_module("transformers.masking_utils")
        masks.find_packed_sequence_indices = lambda _: None
        return _Logits(make())

    return made


def _masked() -> Any:
    """Let a network keep a mask: whether it masks anything is asked of its values."""
    masks = import_module("transformers.masking_utils")
    return patch.object(masks, "_ignore_bidirectional_mask_sdpa", lambda *_, **__: False)


class _Masks(_Around):
    """Classes and masks of the queries, of every layer of the decoder."""

    def forward(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """What the losses are taken of."""
        with _finite():
            found: Any = self.inner(**inputs, output_auxiliary_logits=True)
        layers = [found, *(found.auxiliary_logits or ())]
        return [
            layer[name]
            for layer in layers
            for name in ("class_queries_logits", "masks_queries_logits")
        ]


def _segformer(library: Any, model: str) -> Network:
    widths, depths, decoder = _SEGFORMER[model]
    config = library.SegformerConfig(
        hidden_sizes=list(widths), depths=list(depths), decoder_hidden_size=decoder, num_labels=150
    )

    return Network(
        lambda _: _Upsampled(library.SegformerForSemanticSegmentation(config)), images, 512
    )


class _Upsampled(_Around):
    """Scores of the classes at every pixel, of which the loss is taken."""

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Of the size of the image."""
        (image,) = inputs.values()
        size = image.shape[-2:]
        return torch.nn.functional.interpolate(self.inner(**inputs).logits, size, mode="bilinear")


def _detr(library: Any, model: str) -> Network:
    backbone = library.TimmBackboneConfig(
        backbone=_DETR[model], use_pretrained_backbone=False, out_indices=[1, 2, 3, 4]
    )
    config = library.DetrConfig(
        backbone_config=backbone, num_labels=91, auxiliary_loss=True, use_timm_backbone=False
    )

    return Network(lambda _: _Boxes(library.DetrForObjectDetection(config)), images, 928)


def _rtdetr(library: Any, model: str) -> Network:
    blocks, layers, width, expansion = _RTDETR[model]
    small = expansion < 1
    widths = [64, 128, 256, 512] if small else [256, 512, 1024, 2048]
    backbone = library.RTDetrResNetConfig(
        depths=list(blocks),
        hidden_sizes=widths,
        layer_type="basic" if small else "bottleneck",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = library.RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=widths[1:],
        encoder_hidden_dim=width,
        encoder_ffn_dim=2048 if width == 384 else 1024,
        decoder_in_channels=[width] * 3,
        hidden_expansion=expansion,
        decoder_layers=layers,
        num_labels=80,
    )

    return Network(lambda _: _Boxes(library.RTDetrForObjectDetection(config)), images, 640)


def _conditional_detr(library: Any, _: str) -> Network:
    backbone = library.TimmBackboneConfig(
        backbone="resnet50", use_pretrained_backbone=False, out_indices=[4]
    )
    config = library.ConditionalDetrConfig(
        backbone_config=backbone, num_labels=91, auxiliary_loss=True, use_timm_backbone=False
    )

    return Network(lambda _: _Boxes(library.ConditionalDetrForObjectDetection(config)), images, 928)


def _deformable_detr(library: Any, _: str) -> Network:
    backbone = library.ResNetConfig(out_features=["stage2", "stage3", "stage4"])
    config = library.DeformableDetrConfig(
        backbone_config=backbone, num_labels=91, auxiliary_loss=True
    )

    return Network(lambda _: _Boxes(library.DeformableDetrForObjectDetection(config)), images, 928)


def _sam(library: Any, model: str) -> Network:
    width, layers, heads, whole = _SAM[model]
    vision = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "global_attn_indexes": list(whole),
        "mlp_dim": 4 * width,
    }
    config = library.SamConfig(vision_config=vision)

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        points = {"input_points": torch.empty(batch, 1, 1, 2)}
        return images(batch, side) | points

    return Network(lambda _: _Promptable(library.SamModel(config)), inputs, 1024)


def _sam2(library: Any, model: str) -> Network:
    width, layers, heads, whole = _SAM2[model]
    stages = [width * 2**stage for stage in range(4)]
    backbone: dict[str, Any] = {
        "model_type": "sam2_hiera_det_model",
        "hidden_size": width,
        "num_attention_heads": heads,
        "blocks_per_stage": list(layers),
        "embed_dim_per_stage": stages,
        "num_attention_heads_per_stage": [heads * 2**stage for stage in range(4)],
        "global_attention_blocks": list(whole),
    }
    if width > 96:
        backbone["window_positional_embedding_background_size"] = (
            [14, 14] if width == 112 else [7, 7]
        )
    if width == 144:
        backbone["window_size_per_stage"] = [8, 4, 16, 8]
    vision = {"backbone_config": backbone, "backbone_channel_list": stages[::-1]}
    config = library.Sam2Config(vision_config=vision)

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        points = {"input_points": torch.empty(batch, 1, 1, 2)}
        return images(batch, side) | points | {"input_labels": torch.ones(batch, 1, 1).int()}

    return Network(lambda _: _Promptable(library.Sam2Model(config)), inputs, 1024)


class _Depth(_Around):
    """The depth at every pixel."""

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Of which the loss is taken."""
        found: torch.Tensor = self.inner(**inputs).predicted_depth
        return found


class _Promptable(_Around):
    """Masks and their quality for one point an image."""

    def forward(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """What the losses are taken of."""
        found: Any = self.inner(**inputs)
        return [found.pred_masks, found.iou_scores]


def _parakeet(library: Any, model: str) -> Network:
    config = library.ParakeetCTCConfig(
        encoder_config={"num_hidden_layers": _PARAKEET[model], "layerdrop": 0.0}
    )

    def inputs(batch: int, frames: int) -> Mapping[str, torch.Tensor]:
        return {"input_features": torch.empty(batch, frames, 80)}

    return Network(lambda _: _Logits(library.ParakeetForCTC(config)), inputs, 1504)


class _Boxes(_Around):
    """Classes and boxes of the queries."""

    def forward(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """What the losses are taken of."""
        with _finite(), _masked():
            found: Any = self.inner(**inputs)
        return [found.logits, found.pred_boxes]


# Stable Diffusion 3: layers, heads, the first layers that attend twice, norms of queries and keys.
_SD3 = {
    "stable-diffusion-3-medium": (24, 24, 0, None),
    "stable-diffusion-3.5-medium": (24, 24, 13, "rms_norm"),
    "stable-diffusion-3.5-large": (38, 38, 0, "rms_norm"),
}


def _diffusers(model: str, arguments: Mapping[str, Any]) -> Network:
    library = import_module("diffusers")
    return _OF_DIFFUSERS[model](library, model)


def _sd3(library: Any, model: str) -> Network:
    layers, heads, twice, norms = _SD3[model]

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            "hidden_states": torch.empty(batch, 16, side // 8, side // 8),
            "encoder_hidden_states": torch.empty(batch, TEXT + 256, 4096),
            "pooled_projections": torch.empty(batch, 2048),
            "timestep": torch.empty(batch),
        }

    def make(_: int) -> torch.nn.Module:
        return _Sample(
            library.SD3Transformer2DModel(
                num_layers=layers,
                num_attention_heads=heads,
                caption_projection_dim=64 * heads,
                pos_embed_max_size=384 if twice else 192,
                dual_attention_layers=tuple(range(twice)),
                qk_norm=norms,
                in_channels=16,
                joint_attention_dim=4096,
                pooled_projection_dim=2048,
                out_channels=16,
            )
        )

    return Network(make, inputs, 1024)


def _pixart(library: Any, _: str) -> Network:
    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            "hidden_states": torch.empty(batch, 4, side // 8, side // 8),
            "encoder_hidden_states": torch.empty(batch, 300, 4096),
            "timestep": torch.empty(batch),
        }

    def make(side: int) -> torch.nn.Module:
        return _Halved(
            library.PixArtTransformer2DModel(
                sample_size=side // 8, caption_channels=4096, use_additional_conditions=False
            )
        )

    return Network(make, inputs, 1024, sized=True)


def _sana(library: Any, _: str) -> Network:
    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            "hidden_states": torch.empty(batch, 32, side // 32, side // 32),
            "encoder_hidden_states": torch.empty(batch, 300, 2304),
            "timestep": torch.empty(batch),
        }

    return Network(lambda _: _Sample(library.SanaTransformer2DModel()), inputs, 1024)


def _qwen_image(library: Any, _: str) -> Network:
    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            "hidden_states": torch.empty(batch, (side // 16) ** 2, 64),
            "encoder_hidden_states": torch.empty(batch, PROMPT, 3584),
            "timestep": torch.empty(batch),
        }

    return Network(lambda _: _Square(library.QwenImageTransformer2DModel()), inputs, 1024)


def _sdxl(library: Any, _: str) -> Network:
    def make(_: int) -> torch.nn.Module:
        return _Sample(
            library.UNet2DConditionModel(
                sample_size=128,
                block_out_channels=(320, 640, 1280),
                down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
                up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
                transformer_layers_per_block=(1, 2, 10),
                attention_head_dim=(5, 10, 20),
                cross_attention_dim=2048,
                addition_embed_type="text_time",
                addition_time_embed_dim=256,
                projection_class_embeddings_input_dim=2816,
                use_linear_projection=True,
            )
        )

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            "sample": torch.empty(batch, 4, side // 8, side // 8),
            "timestep": torch.empty(batch),
            "encoder_hidden_states": torch.empty(batch, TEXT, 2048),
            "text_embeds": torch.empty(batch, 1280),
            "time_ids": torch.empty(batch, 6),
        }

    return Network(make, inputs, 1024)


def _wan(library: Any, model: str) -> Network:
    layers, heads, wide = _WAN[model]

    def make(_: int) -> torch.nn.Module:
        return _Sample(
            library.WanTransformer3DModel(
                num_layers=layers, num_attention_heads=heads, ffn_dim=wide
            )
        )

    return Network(make, lambda batch, side: _video(batch, 81, side, PROMPT), 480)


def _cogvideo(library: Any, model: str) -> Network:
    layers, heads = _COGVIDEO[model]

    def make(side: int) -> torch.nn.Module:
        return _Sample(
            library.CogVideoXTransformer3DModel(
                num_layers=layers,
                num_attention_heads=heads,
                sample_height=side // 8,
                sample_width=side // 8,
                use_rotary_positional_embeddings=heads == 48,
            )
        )

    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        found = dict(_video(batch, 49, side, 226))
        return found | {"hidden_states": found["hidden_states"].transpose(1, 2)}

    return Network(make, inputs, 480, sized=True)


def _hunyuan(library: Any, _: str) -> Network:
    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            **_video(batch, 129, side, 256),
            "encoder_attention_mask": torch.ones(batch, 256, dtype=torch.bool),
            "pooled_projections": torch.empty(batch, 768),
            "guidance": torch.empty(batch),
        }

    return Network(lambda _: _Sample(library.HunyuanVideoTransformer3DModel()), inputs, 960)


def _auraflow(library: Any, _: str) -> Network:
    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        return {
            "hidden_states": torch.empty(batch, 4, side // 8, side // 8),
            "encoder_hidden_states": torch.empty(batch, 256, 2048),
            "timestep": torch.empty(batch),
        }

    return Network(lambda _: _Sample(library.AuraFlowTransformer2DModel()), inputs, 1024)


def _video(batch: int, pictures: int, side: int, words: int) -> Mapping[str, torch.Tensor]:
    """Latents of a video, one for the first picture and one for four of the others, and a text."""
    return {
        "hidden_states": torch.empty(batch, 16, 1 + (pictures - 1) // 4, side // 8, side // 8),
        "encoder_hidden_states": torch.empty(batch, words, 4096),
        "timestep": torch.empty(batch),
    }


def _flux(library: Any, _: str) -> Network:
    def inputs(batch: int, side: int) -> Mapping[str, torch.Tensor]:
        patches = (side // 16) ** 2
        return {
            "hidden_states": torch.empty(batch, patches, 64),
            "encoder_hidden_states": torch.empty(batch, PROMPT, 4096),
            "pooled_projections": torch.empty(batch, 768),
            "timestep": torch.empty(batch),
            "guidance": torch.empty(batch),
            "img_ids": torch.empty(patches, 3),
            "txt_ids": torch.empty(PROMPT, 3),
        }

    return Network(
        lambda _: _Sample(library.FluxTransformer2DModel(guidance_embeds=True)), inputs, 1024
    )


class _Sample(_Around):
    """A denoiser and the noise it is compared with."""

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """The mean of squares against the noise, of the same shape as the prediction."""
        names = ("text_embeds", "time_ids")
        told = {name: inputs.pop(name) for name in names if name in inputs}
        more: dict[str, Any] = {"added_cond_kwargs": told} if told else {}
        (found,) = self.inner(**inputs, **more, return_dict=False)
        return torch.nn.functional.mse_loss(found, torch.empty_like(found))


class _Square(_Around):
    """A denoiser that is told the sides of the images, which are squares."""

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """The mean of squares against the noise, of the same shape as the prediction."""
        batch, patches, _ = inputs["hidden_states"].shape
        side = math.isqrt(patches)
        shapes = [[(1, side, side)]] * batch
        (found,) = self.inner(**inputs, img_shapes=shapes, return_dict=False)
        return torch.nn.functional.mse_loss(found, torch.empty_like(found))


class _Halved(_Sample):
    """A denoiser that predicts a variance beside the noise."""

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """The mean of squares of the first half of its channels."""
        (found,) = self.inner(**inputs, return_dict=False)
        noise = found.chunk(2, dim=1)[0]
        return torch.nn.functional.mse_loss(noise, torch.empty_like(noise))


_OF_DIFFUSERS: Mapping[str, Callable[[Any, str], Network]] = {
    "AuraFlow-v0.3": _auraflow,
    "FLUX.1-dev": _flux,
    "HunyuanVideo": _hunyuan,
    "PixArt-Sigma-XL-2-1024-MS": _pixart,
    "Qwen-Image": _qwen_image,
    "Sana_1600M_1024px": _sana,
    "stable-diffusion-xl-base-1.0": _sdxl,
    **dict.fromkeys(_SD3, _sd3),
    **dict.fromkeys(_WAN, _wan),
    **dict.fromkeys(_COGVIDEO, _cogvideo),
}
_OF_TRANSFORMERS: Mapping[str, Callable[[Any, str], Network]] = {
    "ast-finetuned-audioset": _spectrogram,
    "conditional-detr-resnet-50": _conditional_detr,
    "deformable-detr": _deformable_detr,
    "mobilebert": _mobilebert,
    "mpnet-base": _mpnet,
    "timesformer-base": _timesformer,
    "w2v-bert-2.0": _w2v_bert,
    **dict.fromkeys(_ALBERT, _albert),
    **dict.fromkeys(_ELECTRA, _electra),
    **dict.fromkeys(_GEMMA4, _gemma4),
    **dict.fromkeys(("gemma-3n-E2B", "gemma-3n-E4B"), _gemma3n),
    **dict.fromkeys(_XLNET, _xlnet),
    **dict.fromkeys(_LAYOUTLM, _layoutlm),
    **dict.fromkeys(_SAM2, _sam2),
    **dict.fromkeys(_DEPTH_ANYTHING, _depth_anything),
    **dict.fromkeys(_DINOV2, _dinov2),
    **dict.fromkeys(_TROCR, _trocr),
    **dict.fromkeys(_YOLOS, _yolos),
    **dict.fromkeys(_NUCLEOTIDE, _nucleotide),
    **dict.fromkeys(_SIGLIP, _siglip),
    **dict.fromkeys(_VIDEOMAE, _videomae),
    **dict.fromkeys(_MAE, _mae),
    **dict.fromkeys(_WAVLM, _wavlm),
    **dict.fromkeys(_CLIP, _clip),
    **dict.fromkeys(_DETR, _detr),
    **dict.fromkeys(_ESM, _esm),
    **dict.fromkeys(_MASK2FORMER, _mask2former),
    **dict.fromkeys(_MODERNBERT, _modernbert),
    **dict.fromkeys(_PARAKEET, _parakeet),
    **dict.fromkeys(_RTDETR, _rtdetr),
    **dict.fromkeys(_SAM, _sam),
    **dict.fromkeys(_SEGFORMER, _segformer),
    **dict.fromkeys(_WHISPER, _whisper),
}
_LIBRARIES: Mapping[str, Callable[[str, Mapping[str, Any]], Network]] = {
    "diffusers": _diffusers,
    "timm": _timm,
    "torchvision": _torchvision,
    "transformers": _transformers,
    "ultralytics": _ultralytics,
}
