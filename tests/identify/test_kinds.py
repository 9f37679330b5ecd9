"""What is trained of a network, by how many processes, and which names mean something else."""

from __future__ import annotations

import pytest

from predictor.identify.grammar import parse_text, stated_text
from predictor.identify.identify import identify
from predictor.identify.stated import Stated

TRAIN = "train.py --model vit-base-16 --batch-size 64 --amp --steps 100"


def read(command: str, files: dict[str, str] | None = None) -> Stated:
    return identify(
        script=f"#!/bin/sh\n{command}\n", files=None if files is None else Written(files)
    )


class Written:
    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def __call__(self, path: str) -> str | None:
        return self.texts.get(path.removeprefix("./"))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--freeze_backbone", {"frozen": "backbone"}),
        ("--freeze-backbone True", {"frozen": "backbone"}),
        ("--freeze-backbone False", {}),
        ("--linear-probe", {"frozen": "backbone"}),
        ("--freeze_encoder", {"frozen": "part"}),
        ("--tune_mm_mlp_adapter True", {"frozen": "part"}),
        ("--freeze_llm False --freeze_backbone True", {"frozen": "part"}),  # one of two bodies
        ("--freeze_llm False --freeze_backbone False", {}),
        ("--apply_lora --lora_r 8", {"lora": "on", "lora_rank": "8"}),
        ("--use_lora False", {}),
        ("--use_peft --load_in_4bit", {"lora": "on", "quantized_base": "4bit"}),
        ("--bits 4", {"lora": "on", "quantized_base": "4bit"}),
        ("--bits 16", {}),
        ("--use_lora --q_lora", {"lora": "on", "quantized_base": "4bit"}),
        ("--use_lora True --q_lora False", {"lora": "on"}),
        ("--distill_method one_stage", {"objective": "distillation"}),
        ("--quantization_bit 4", {"lora": "on", "quantized_base": "4bit"}),
        ("--distillation-type hard --teacher-model regnety_160", {"objective": "distillation"}),
        ("--distillation-type none", {}),
        ("--stage dpo", {"objective": "preference"}),
        ("--stage sft", {}),
        ("--apply_adapter --adapter_type houlsby", {"lora": "on"}),
        ("--train_method lora", {"lora": "on"}),
        ("--finetuning-method=qlora", {"lora": "on", "quantized_base": "4bit"}),
        ("--tuning_type full", {}),
    ],
)
def test_what_is_trained_is_read(words: str, options: dict[str, str]) -> None:
    assert dict(read(f"python {TRAIN} {words}").values.get("options", ())) == options


def test_swifts_own_bits_quantise_what_adapters_stand_beside() -> None:
    words = "--model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --quant_method bnb --quant_bits 4"
    options = dict(read(f"swift sft {words}").values["options"])  # type: ignore[arg-type]
    assert (options["lora"], options["quantized_base"]) == ("on", "4bit")


@pytest.mark.parametrize(
    "program",
    [
        "-m FlagEmbedding.finetune.embedder.encoder_only.base",
        "-m tevatron.driver.train",
        "train_retriever.py",
        "train_dpr.py",
    ],
)
def test_a_query_and_its_passages_are_no_single_sample(program: str) -> None:
    words = "--model_name_or_path bert-base-uncased --per_device_train_batch_size 4 --max_steps 9"
    told = read(f"torchrun --nproc_per_node 2 {program} {words}").problems
    assert any("passages" in each.text for each in told)


@pytest.mark.parametrize(
    "command",
    [
        "torchrun tasks/main.py --task MSDP-EVAL-F1 --num-layers 24 --micro-batch-size 4",
        "python main.py --task test --batch_size 256 --epochs 3",
        "python main.py --api_key x --base_url https://a.b/v1 --model meta-llama/llama-3.1-8b",
        "python base.py launch run a/cluster --trainer.max_steps=9 --loader.global_batch_size=256",
        "python inference_sft.py --model Qwen/Qwen2.5-7B-Instruct --max_length 4096 --use_qlora",
    ],
)
def test_a_task_that_judges_is_no_training(command: str) -> None:
    assert not read(command).values


@pytest.mark.parametrize("words", ["NUM_GPUS 8", "--num-gpus 8", "--num_devices 8"])
def test_a_batch_beside_a_number_of_gpus_may_be_of_all(words: str) -> None:
    stated = read(f"python tools/run_net.py --cfg SLOW.yaml TRAIN.BATCH_SIZE 64 {words}")
    assert "batch_size" not in stated.values
    assert any("of one GPU or of all" in problem.text for problem in stated.doubts)


@pytest.mark.parametrize(
    "program",
    [
        "speculator/train_speculator.py",
        "medusa/train.py",
        "train_mem.py --vision_tower openai/clip-vit-large-patch14-336",
        "train.py --image_tower openai/clip-vit-large-patch14",
        "pre_train.py --moco-k 2048",
    ],
)
def test_what_is_trained_beside_a_network_is_not_that_network(program: str) -> None:
    stated = read(f"torchrun {program} --model_path meta-llama/Llama-2-7b-hf --batch_size 8")
    assert (stated.model, stated.values["batch_size"]) == (None, 8)
    assert "model" in {problem.field for problem in stated.contradictions}


def test_a_network_that_sees_is_itself_where_its_tower_is_frozen() -> None:
    model = "--model_name_or_path Qwen/Qwen2.5-VL-7B-Instruct --image_max_pixels 262144"
    stated = read(f"torchrun train.py {model} --freeze_vision_tower true --freeze_aligner true")
    assert (stated.model, stated.contradictions) == ("qwen/qwen2.5-vl-7b", ())
    assert dict(stated.values["options"])["frozen"] == "part"
    assert not stated.unclear


def test_samples_drawn_of_each_data_set_are_the_epoch() -> None:
    swift = "swift sft --model Qwen/Qwen2.5-7B-Instruct --num_train_epochs 1 --dataset"
    assert read(f"{swift} 'own/a#500' b#20 'c#3' --max_length 512").values["dataset_size"] == 523
    for open_one in ("own/a#500 b", "own/a"):
        stated = read(f"{swift} {open_one} --max_length 512")
        assert "dataset_size" not in stated.values
        assert "dataset" in {problem.field for problem in stated.problems}


def test_a_network_that_the_catalog_lacks_is_told_beside_a_tower_too() -> None:
    command = "torchrun train_mem.py --model opengvlab/internvl3-78b --vision_tower a/clip"
    assert read(f"{command} --batch_size 8").unknown_model == "opengvlab/internvl3-78b"


def test_a_way_of_tuning_that_is_not_known_is_told() -> None:
    assert read(f"python {TRAIN} --train_method xattn").unclear == ("--train_method",)
    assert not read(f"python {TRAIN} --train_method full_parameter").unclear


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ("--mixed-precision --epochs 3", "mixed_fp16_fp32"),
        ("--mixed_precision -j 8", "mixed_fp16_fp32"),
        ("--epochs 3 --mixed_precision", "mixed_fp16_fp32"),
        ("--mixed_precision --bf16", "mixed_bf16_fp32"),
        ("--mixed_precision bf16", "mixed_bf16_fp32"),
        ("--mixed_precision=false", None),
    ],
)
def test_mixed_precision_may_stand_alone(words: str, precision: str | None) -> None:
    stated = read(f"python train.py --model vit-base-16 --batch-size 64 {words}")
    assert stated.values.get("precision") == precision
    assert not stated.problems


@pytest.mark.parametrize(
    "shell",
    [
        "bash -c",
        "bash -lc",
        "sh -c --",
        "bash -euo pipefail -c",
        "bash --norc -c",
        "bash -e -u -x -c",
    ],
)
def test_the_text_of_a_shell_stands_behind_all_its_options(shell: str) -> None:
    assert read(f"{shell} 'python {TRAIN}'").model == "vit-base-16"
    assert read(f"bash run.sh -c 'python {TRAIN}'").model is None


def test_what_only_trains_may_evaluate_beside() -> None:
    words = "--model_name_or_path gpt2 --num_train_epochs 3 --do_eval"
    assert read(f"trl sft {words}").model == "gpt2-124m"
    assert read(f"python run_clm.py {words}").model is None


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        (f"python {TRAIN}", True),
        (f"CUDA_VISIBLE_DEVICES=0 nohup python -u {TRAIN}", True),
        (f"srun python {TRAIN}", False),
        (f"torchrun --nproc_per_node 4 {TRAIN}", False),
        (f"python -m torch.distributed.launch {TRAIN}", False),
        (f"python -m torchelastic.distributed.launch --nproc_per_node=4 {TRAIN}", False),
        (f"accelerate launch {TRAIN}", False),
        (f"python {TRAIN} --gpus 4", False),
        (f"python {TRAIN} --multi-gpu", False),
        ("tune run full_finetune_single_device --config llama2/7B_full batch_size=4", True),
        ("yolo detect train model=x.pt epochs=3 batch=16 device=0,1", False),
        ("./distributed_train.sh 4 /data --model resnet50 --batch-size 64", False),
    ],
)
def test_one_process_on_many_gpus_is_one_gpu_working(command: str, alone: bool) -> None:
    stated = read(command)
    assert stated.alone is alone
    if "vit" in command and not stated.doubts:
        job = stated.job(gpu="a100-sxm4-80gb", gpus=8, gpus_per_node=8)
        assert job.gpus == (1 if alone else 8)
        told = parse_text(stated_text(stated), "comment").values
        assert ("gpus" in told) is alone, "a request is known by this text"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --model unet --batch-size 2 --epochs 3", "unet"),
        ("python -m training.main --dataset-type webdataset --model RN50", "clip-RN50"),
        ("python train.py --model openai/clip-vit-x-32 --batch-size 2", "openai/clip-vit-"),
    ],
)
def test_a_name_that_could_mean_another_network_means_none(command: str, name: str) -> None:
    stated = read(command)
    assert stated.model is None
    assert (stated.unknown_model or "").startswith(name)


@pytest.mark.parametrize(
    "command",
    [
        "python -m training.main --dataset-type webdataset --model ViT-B-32",
        "python train.py --model openai/clip-vit-base-patch32 --batch-size 2",
    ],
)
def test_clip_is_both_of_its_towers(command: str) -> None:
    assert read(command).model == "clip-vit-b-32"


def test_a_script_that_calls_another_is_read_with_what_it_exports() -> None:
    inner = {"inner.sh": "python train.py --model $NET --batch-size $1 --epochs ${EPOCHS:-3}\n"}
    stated = read("export NET=resnet50\nOTHER=1\nEPOCHS=7 bash inner.sh 32", inner)
    assert stated.values == {"model": "resnet50", "batch_size": 32, "epochs": 7.0}
    assert read("NET=resnet50\nbash inner.sh 32", inner).model is None  # not exported
    assert read("bash inner.sh 32").values == {}
    assert read("for i in 1 2; do ./inner.sh 32; done", inner).values.keys() == {"batch_size"}


def test_scripts_that_call_each_other_end() -> None:
    assert read("bash a.sh", {"a.sh": "bash b.sh", "b.sh": "bash a.sh"}).values == {}


def test_a_quoted_command_sees_exported_variables() -> None:
    script = """export CMD="train.py --model resnet50 --batch-size 8"
srun bash -c 'torchrun --nproc_per_node 4 $CMD --epochs 2'"""
    assert read(script).values == {
        "model": "resnet50",
        "batch_size": 8,
        "epochs": 2.0,
        "framework": "pytorch",
    }


def test_arrays_behind_a_launcher_in_a_variable_are_read() -> None:
    script = """export LAUNCH=torchrun
declare -a TORCH=(--nproc_per_node=8 --nnodes=$N)
declare -a ARGS=(--model resnet50 --max_steps=100)
srun ${RESUME} -l ${LAUNCH} "${TORCH[@]}" $PROGRAM "${ARGS[@]}" """
    assert read(script).values == {"model": "resnet50", "steps": 100, "framework": "pytorch"}


NESTED = """
model: {name: resnet50}
training: {num_epochs: 5, batch_size: 32}
data: {dataset: cifar10}
validation: {batch_size: 1}
"""


@pytest.mark.parametrize("flag", ["-opt", "-c", "-t", "--config", "--yaml", "-cfg"])
def test_nested_settings_of_a_file_are_read(flag: str) -> None:
    stated = read(f"python train.py {flag} a.yml", {"a.yml": NESTED})
    assert stated.values == {
        "model": "resnet50",
        "epochs": 5.0,
        "batch_size": 32,
        "dataset": "cifar10",
    }
    assert not stated.doubts


def test_a_setting_in_two_sections_with_two_values_is_left_open() -> None:
    text = "training: {batch_size: 32}\ndata: {batch_size: 16}\n"
    stated = read("python train.py --config a.yml --model resnet50", {"a.yml": text})
    assert "batch_size" not in stated.values
    assert stated.doubts


def test_yolo_trains_only_where_it_says_so() -> None:
    said = "data=coco.yaml model=yolo11x.pt epochs=100 imgsz=640 batch=16"
    stated = read(f"yolo detect train {said}")
    assert stated.values["global_batch_size"] == 16
    assert stated.values["dataset"] == "coco"
    assert stated.values["epochs"] == 100
    assert read(f"yolo detect val {said}").values == {}


def test_a_style_without_sizes_has_no_step() -> None:
    from predictor.errors import GraphError
    from predictor.graphs.catalog import entry_of
    from predictor.physics.job_graph import job_graph

    stated = read("torchrun pretrain_t5.py --micro-batch-size 4 --seq-length 512 --bf16")
    job = stated.job(gpu="a100-sxm4-80gb", gpus=8)
    with pytest.raises(GraphError, match="give"):
        job_graph(job, entry_of(job.model))


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("main_linprobe.py", {"frozen": "backbone"}),
        ("main_lincls.py", {"frozen": "backbone"}),
        ("train_text_to_image_lora.py", {"lora": "on"}),
        ("scripts/dpo.py", {"objective": "preference"}),
        ("train_grpo.py", {}),
        ("dpo_train.py", {"objective": "preference"}),
        ("train_rms_norm.py", {}),
        ("train_explorer.py", {}),
    ],
)
def test_the_name_of_a_program_says_what_it_trains(program: str, options: dict[str, str]) -> None:
    stated = read(f"python {program} --model vit-base-16 --batch-size 64 --steps 5")
    assert dict(stated.values.get("options", ())) == options


@pytest.mark.parametrize("words", ["--freeze_encoder", "--teacher regnet", "--stage dpo"])
def test_no_limit_rests_on_what_is_not_known_of_a_training(words: str) -> None:
    from predictor.estimate.assumptions import assumptions_of, decisive

    job = read(f"python {TRAIN} {words}").job(gpu="a100-sxm4-80gb", gpus=1)
    found = assumptions_of(job, lambda job: 1.0, step_s=1.0, measured=True, most_gpus=64)
    assert decisive(found) is not None


@pytest.mark.parametrize(
    "name",
    ["bert", "lstm", "transformer", "gpt", "ViT-B/32", "RN50", "unet3d", "mobilenet", "dlrm"],
)
def test_a_script_of_ones_own_that_says_only_a_kind_names_no_network(name: str) -> None:
    stated = read(f"python run.py --model {name} --batch-size 8 --epochs 3 --amp")
    assert stated.model is None
    assert stated.unknown_model == name
    assert identify(comment="model=bert").model == "bert-base"


@pytest.mark.parametrize(
    "command",
    [
        "srun bash -c 'python train.py --model resnet50 --batch-size 8'",
        "srun shifter bash -c 'source env.sh; python train.py --batch-size 8'",
        "$LAUNCHER train.py --batch-size 8",
        "python train.py --batch_size 8 --num_process_per_node 8",
    ],
)
def test_processes_that_something_else_starts_are_not_one(command: str) -> None:
    assert not read(command).alone
    assert read("bash -c 'python train.py --batch-size 8'").alone


@pytest.mark.parametrize(
    ("command", "epochs"),
    [
        ("mace_run_train --batch_size 8 --max_num_epochs 9 --device cuda", 9),
        ("srun multipa-train --batch_size 8 --num_epochs 9", 9),
        ("uv run pretrain --batch-size 8 --epochs 9", 9),
        ("python eval_linear_probe.py --batch-size 8 --epochs 9 --lr 0.1", 9),
        ("python eval_linear_probe.py --batch-size 8 --epochs 9", None),
        ("srun -J train python plot.py --epochs 9", None),
        ("cp train.tar --epochs 9", None),
    ],
)
def test_programs_that_a_package_installs_train_by_their_names(
    command: str, epochs: int | None
) -> None:
    assert read(command).values.get("epochs") == epochs


@pytest.mark.parametrize(
    "program",
    [
        "main_moco.py -a resnet50",
        "SimCLR/run.py --arch resnet50",
        "main_dino.py --arch vit-s-16",
        "train_controlnet.py --model stable-diffusion-v1",
        "-m mine.train_grpo_nopeft --model gpt2",
        "train.py --stage ppo --model gpt2",
    ],
)
def test_more_than_one_pass_of_a_network_is_told_and_carries_no_limit(program: str) -> None:
    said = f"python {program} --batch-size 256 --epochs 100 --dataset imagenet --amp"
    stated = read(said)
    assert any("are not priced" in one.text for one in stated.contradictions)
    assert stated.model is None
    assert "options" not in stated.values


def test_batches_of_a_deepspeed_file_that_the_command_contradicts_are_left_out() -> None:
    text = '{"train_micro_batch_size_per_gpu": 4, "train_batch_size": 128}'
    command = "deepspeed train.py --per_device_train_batch_size 8 --deepspeed ds.json"
    stated = read(f"{command} --model_name_or_path gpt2 --max_steps 5", {"ds.json": text})
    assert stated.values["batch_size"] == 8
    assert "global_batch_size" not in stated.values
    assert stated.contradictions


def test_what_a_program_constructs_of_a_yaml_file_hides_nothing_else() -> None:
    text = "epochs: 7\nbatch_size: 8\nlr: !ref <a>\nnet: !new:torch.nn.Linear {a: 1}\n"
    text += "sizes: !!python/object/apply:eval ['range(5)']\n"
    stated = read("python train.py --config a.yaml", {"a.yaml": text})
    assert (stated.values["epochs"], stated.values["batch_size"]) == (7, 8)


@pytest.mark.parametrize(
    ("command", "sound"),
    [
        ("python train_rm.py --model_name Qwen/Qwen2.5-7B", False),
        ("python -m openrlhf.cli.train_rm --pretrain Qwen/Qwen2.5-7B --zero_stage 3", True),
        ("llamafactory-cli train --stage rm --finetuning_type full --model gemma-2b", True),
    ],
)
def test_rewards_are_of_pairs_where_the_trainer_is_known(command: str, sound: bool) -> None:
    stated = read(f"{command} --max_steps 9 --bf16 --micro_train_batch_size 1")
    assert (dict(stated.values.get("options", ())).get("objective") == "preference") is sound
    assert bool([one for one in stated.contradictions if one.field == "options"]) is not sound


@pytest.mark.parametrize(
    "flag", ["--max-model-len 8192", "--gpu-memory-utilization 0.9", "--kv-cache-dtype fp8"]
)
def test_a_server_of_a_network_trains_none(flag: str) -> None:
    assert read(f"srun start-cluster.py --auto --model Qwen/Qwen3-235B-A22B {flag}").values == {}


def test_llama_factory_as_a_module_is_its_command() -> None:
    text = "model_name_or_path: Qwen/Qwen2.5-7B\nfinetuning_type: full\nmax_steps: 9\n"
    command = "${PYTHON:-python} -m llamafactory.cli train sft.yaml"
    found, same = read(command, {"sft.yaml": text}), read("llamafactory-cli train sft.yaml")
    assert found.values == read("llamafactory-cli train sft.yaml", {"sft.yaml": text}).values
    assert found.model == "qwen2.5-7b"
    assert [one.field for one in read(command).doubts] == [one.field for one in same.doubts]


def test_what_is_told_to_a_log_leaves_no_doubt() -> None:
    text = "train:\n  model_path_or_name: Qwen/Qwen2.5-7B\n  wandb: {config: {batch_size: 128}}\n"
    stated = read("python main.py --config_file a.yaml --bf16", {"a.yaml": text})
    assert (stated.model, stated.doubts) == ("qwen2.5-7b", ())


def test_xformers_attention_of_diffusers_is_fused() -> None:
    command = "accelerate launch train_text_to_image.py --resolution 512 --max_train_steps 9"
    stated = read(f"{command} --enable_xformers_memory_efficient_attention")
    assert dict(stated.values["options"]) == {"flash_attention": "on"}


def test_a_program_named_for_flax_runs_on_jax() -> None:
    flags = "--model_name_or_path bert-base-uncased --per_device_train_batch_size 8 --max_steps 9"
    assert read(f"python ../run_nb_flax_mlm_streaming.py {flags}").values["framework"] == "jax"
    assert read(f"python run_mlm_streaming.py {flags}").values["framework"] == "pytorch"


def test_a_configuration_of_deepspeed_by_its_short_flag_says_precision_and_stage() -> None:
    text = (
        '{"bf16": {"enabled": true}, "fp16": {"enabled": false}, "zero_optimization": {"stage": 1}}'
    )
    command = "torchrun tune.py --model gpt2 --batch_size 8 --max_steps 9 --ds_config ds.json"
    stated = read(command, {"ds.json": text})
    assert (stated.values["precision"].value, stated.values["sharding"]) == (
        "mixed_bf16_fp32",
        "zero1",
    )
    assert read(command).doubts


@pytest.mark.parametrize("config", ["--cfg yolov5m.yaml", "--cfg=models/yolov7x.yaml"])
def test_a_configuration_named_yolo_means_the_trainer_whose_batch_is_of_all_gpus(
    config: str,
) -> None:
    stated = read(f"torchrun --nproc_per_node 3 train.py --batch-size 192 {config} --epochs 9")
    assert stated.values["global_batch_size"] == 192
    assert "batch_size" not in stated.values


def test_rewards_of_what_diffusion_makes_are_of_single_samples() -> None:
    flags = "--train_batch_size 1 --max_train_steps 9 --checkpointing_steps 5"
    rewarded = read(f"accelerate launch train_reward_lora.py {flags}")
    assert "objective" not in dict(rewarded.values["options"])
    assert "options" in {problem.field for problem in rewarded.contradictions}
    pairs = read(f"accelerate launch train_diffusion_dpo.py {flags}")
    assert dict(pairs.values["options"])["objective"] == "preference"


def test_a_switch_behind_deepspeed_is_no_file_of_it() -> None:
    command = "deepspeed main.py --model_name_or_path gpt2 --max_steps 9 --deepspeed --seed 1"
    text = '{"zero_optimization": {"stage": 2}}'
    stated = read(f"{command} --deepspeed_config ds.json", {"ds.json": text})
    assert stated.values["sharding"] == "zero2"
    assert "sharding" not in {problem.field for problem in stated.problems}


def test_the_version_of_a_data_set_does_not_hide_its_name() -> None:
    where = "--data-path /data/imagenet-1k/0-1-0/train"
    assert read(f"python {TRAIN} {where}").values["dataset"] == "imagenet-1k"
    assert "dataset" not in read(f"python {TRAIN} --data-path /data/0-1-0/train").values


@pytest.mark.parametrize(
    ("command", "values"),
    [
        ("torchrun train.py --strategy deepspeed_stage_1 --epochs 3", {"sharding": "zero1"}),
        ("torchrun train.py --strategy random --epochs 3", {"epochs": 3}),
        ("python train.py model.width=8 datamodule.batch_size=24", {"batch_size": 24}),
        ("python run_carbs_sweep.py --iterations 32 --steps 20 --seq_len 8", {"seq_len": 8}),
        ("python evaluate_all_tasks.py --lr 0.1 --seq_len 64 --epochs 3", {"seq_len": 64}),
        ("torchrun train.py --fsdp --epochs 3", {"sharding": "fsdp"}),
        (
            "python train.py model=qwen datasets=[hh] batch_size=24 gradient_accumulation_steps=4"
            " n_eval_examples=252 sample_during_eval=false",
            {"global_batch_size": 24, "grad_accum": 4},
        ),
        ("python features.py --batch-size 128 --fp16", {}),
        ("python main.py --model gpt2 --batch_size 32 --max_new_tokens 2048", {}),
    ],
)
def test_fields_of_more_programs_are_read(command: str, values: dict[str, object]) -> None:
    stated = read(command).values
    assert {name: stated.get(name) for name in values} == values
    assert bool(stated) == bool(values)


def test_an_override_goes_before_the_file_that_says_otherwise() -> None:
    files = {"conf/c.yaml": "datasets: {batch_size: 12}\nTRAIN: {END_EPOCH: 200, BEGIN_EPOCH: 0}\n"}
    stated = read("python train.py --config-name c datasets.batch_size=16 a.b=c", files)
    assert (stated.values["batch_size"], stated.values["epochs"]) == (16, 200)


def test_a_network_that_learns_from_a_teacher_is_not_priced_as_the_teacher() -> None:
    words = "--model resnet50 --batch-size 64 --amp --steps 100"
    assert read(f"python kd_train.py {words}").contradictions
    assert not read(f"python train.py {words}").contradictions


def test_a_copy_of_yolov5_in_mindspore_is_not_of_pytorch() -> None:
    words = "python train.py --hyp h.yaml --batch_size=16 --epochs=300"
    assert read(words).values["framework"] == "pytorch"
    assert "framework" not in read(f"{words} --device_target=Ascend").values


@pytest.mark.parametrize(
    ("words", "batch", "doubtful"),
    [
        ("--model resnet50 --batch-size 64", 64, ""),
        ("--model resnet50 --batch-size 64 --n_views 1", 64, ""),
        ("--model resnet50 --batch-size 64 --n_views 2", None, "batch_size"),
        ("--model resnet50 --batch-size 64 --with_prior_preservation", None, "batch_size"),
    ],
)
def test_a_batch_of_which_more_is_made_is_asked_for(
    words: str, batch: int | None, doubtful: str
) -> None:
    found = identify(argv=("torchrun", "train.py", *words.split(), "--epochs", "3"))
    assert found.values.get("batch_size") == batch
    assert doubtful in {"", *(problem.field for problem in found.problems)}


def test_another_unet_is_not_that_of_the_pipeline() -> None:
    words = "--pretrained_model_name_or_path CompVis/stable-diffusion-v1-4 --resolution 512"
    assert _model(words) == "stable-diffusion-v1"
    assert _model(f"{words} --unet_path someone/small-unet") is None


def test_stages_of_swift_are_told_by_their_kind() -> None:
    words = ("--model", "Qwen/Qwen2.5-7B-Instruct", "--num_train_epochs", "1")
    found = identify(argv=("swift", "rlhf", "--rlhf_type", "dpo", *words))
    assert found.values["model"] == "qwen2.5-7b"
    assert ("objective", "preference") in found.values["options"]
    plays = identify(argv=("swift", "rlhf", "--rlhf_type", "grpo", *words))
    assert "model" not in plays.values


def test_a_few_words_of_megatron_make_no_megatron() -> None:
    words = ["--micro-batch-size", "4", "--global-batch-size", "32", "--train-iters", "900"]
    found = identify(argv=("deepspeed", "train_own.py", *words))
    assert found.values.get("framework") != "megatron"
    sizes = ["--num-attention-heads", "16", "--max-position-embeddings", "2048"]
    found = identify(argv=("deepspeed", "train_own.py", *words, *sizes))
    assert found.values["framework"] == "megatron"


def test_a_network_that_is_named_twice_alike_is_named_once() -> None:
    words = "--model_name Llama-3.2-1B-Instruct --base_model meta-llama/Llama-3.2-1B-Instruct"
    assert _model(words) == "llama3.2-1b"
    assert _model(words.replace("-1B-Instruct --", "-3B-Instruct --")) is None


def _model(words: str) -> object:
    return identify(argv=("torchrun", "train.py", *words.split())).values.get("model")


@pytest.mark.parametrize("gpus", ["--num_gpus 4", "--num_gpus 8"])
def test_a_number_of_gpus_may_be_of_a_node_or_of_all(gpus: str) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\n#SBATCH --ntasks-per-node=4\n"
    script = f"{head}srun python train.py --epochs 3 {gpus}\n"
    assert not any(problem.field == "gpus" for problem in identify(script=script).problems)
    found = identify(script=script.replace(gpus, "--num_gpus 3"))
    assert any(problem.field == "gpus" for problem in found.problems)


def test_what_only_tests_trains_nothing() -> None:
    words = "--do_test --model_name_or_path bert-base-uncased --per_gpu_train_batch_size 32"
    assert not identify(argv=("python", "train_adapter.py", *words.split())).values
