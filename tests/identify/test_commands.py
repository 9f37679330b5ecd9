"""What single command lines say, whatever launches them."""

from __future__ import annotations

from typing import Any

import pytest

from predictor.identify.identify import alike, identify, parse_script
from predictor.identify.keys import FIELD_OF
from predictor.identify.launch import flags
from predictor.job.precision import Precision

FLAGS = "--model resnet50 --batch-size 32 --epochs 5"
SAID = {"model": "resnet50", "batch_size": 32, "epochs": 5.0}


def values(text: str, **variables: str) -> dict[str, Any]:
    return dict(parse_script(text, environment=variables).values)


@pytest.mark.parametrize(
    "launcher",
    [
        "python run.py",
        "python3.11 -u run.py",
        "./run.py",
        "/opt/env/bin/python code/run.py",
        "srun -N2 --gpus=8 python run.py",
        "mpirun -np 8 -x PATH python run.py",
        "torchrun --nproc_per_node=8 --nnodes $N run.py",
        "python -m torch.distributed.run run.py",
        "python -m torch.distributed.launch --nproc_per_node 8 run.py",
        "python -m my.package.run",
        "python -um my.package.run",
        "accelerate launch --num_processes 8 run.py",
        "deepspeed --num_gpus=8 run.py",
        "horovodrun -np 4 python run.py",
        '/usr/bin/time -f "%E %M" -o time.log python run.py',
        "singularity exec --nv img.sif python run.py",
        "srun apptainer exec --nv img.sif torchrun run.py",
        "docker run --gpus all img python run.py",
        "CUDA_VISIBLE_DEVICES=0 nohup python run.py",
        "time python run.py",
        "timeout 3h python run.py",
        "conda run -n env python run.py",
        "nsys profile -o x python run.py",
        "torchrun -m pkg.run",
        "uv run -m pkg.run",
        "uv run -m torch.distributed.run --nproc-per-node 4 -m pkg.run",
        "srun -m block python run.py",
        "exec python run.py",
        "python $WHERE/run.py",
        "python $SCRIPT",
    ],
)
def test_any_launcher_leads_to_the_program(launcher: str) -> None:
    found = values(f"{launcher} {FLAGS}")
    assert found.pop("framework", "pytorch") == "pytorch"
    assert found == SAID


@pytest.mark.parametrize(
    "text",
    [
        f"echo python run.py {FLAGS}",
        f"# python run.py {FLAGS}",
        f"./simulate {FLAGS}",
        f"python evaluate.py {FLAGS}",
        f"python run.py {FLAGS} --evaluate",
        f"cat run.py {FLAGS}",
        f"python preprocess_data.py {FLAGS}",
        f"cat <<E\npython run.py {FLAGS}\nE",
        f"grep {FLAGS} x.py",
        "python run_glue.py --model_name_or_path bert-base-uncased --do_eval",
    ],
)
def test_what_does_not_train_says_nothing(text: str) -> None:
    stated = parse_script(text)
    assert not stated.values
    assert not stated.problems


@pytest.mark.parametrize(
    "text",
    [
        f"srun bash -c 'python run.py {FLAGS}'",
        f'bash -lc "torchrun run.py {FLAGS}"',
        f"apptainer exec x.sif bash -e -c 'cd /x; python run.py {FLAGS}'",
    ],
)
def test_a_command_for_another_shell_is_read(text: str) -> None:
    assert {k: v for k, v in values(text).items() if k != "framework"} == SAID


def test_without_a_script_the_command_itself_is_read() -> None:
    argv = ("python", "train.py", *FLAGS.split())
    assert dict(parse_script("", argv).values) == SAID


@pytest.mark.parametrize(
    ("flag", "precision"),
    [
        ("--fp16", Precision.MIXED_FP16_FP32),
        ("--bf16 True", Precision.MIXED_BF16_FP32),
        ("--amp", Precision.MIXED_FP16_FP32),
        ("--precision 16", Precision.MIXED_FP16_FP32),
        ("--precision bf16-mixed", Precision.MIXED_BF16_FP32),
        ("--dtype float16", Precision.MIXED_FP16_FP32),
        ("--precision bf16-true", Precision.BF16),
        ("--precision 32-true", Precision.FP32),
        ("--opt-level O2", Precision.MIXED_FP16_FP32),
        ("--mixed_precision=fp8", Precision.MIXED_FP8_BF16),
        ("--bf16 --tf32 true", Precision.MIXED_BF16_FP32),
        ("--tf32 True", Precision.TF32),
        ("--amp --amp-dtype bfloat16", Precision.MIXED_BF16_FP32),
        ("--fp16 False", None),
        ("--bf16=0", None),
        ("--amp-dtype bfloat16", None),
        ("", None),
    ],
)
def test_precision_flags_mean_autocast(flag: str, precision: Precision | None) -> None:
    said = values(f"python train.py --model vgg16 {flag}")
    assert said.get("precision") == precision


@pytest.mark.parametrize("text", ["--max_steps -1 --epochs 5", "--epochs 5 --batch_size auto"])
def test_a_flag_set_to_nothing_says_nothing(text: str) -> None:
    stated = parse_script(f"python train.py {text}")
    assert dict(stated.values) == {"epochs": 5.0}
    assert not stated.problems


def test_the_last_of_a_repeated_flag_counts() -> None:
    assert values("python train.py --epochs 5 --epochs 7") == {"epochs": 7.0}


def test_steps_go_before_epochs_in_the_trainer_of_hugging_face() -> None:
    common = "python run_mlm.py --model_name_or_path gpt2 --num_train_epochs 3"
    assert values(f"{common} --max_steps 70")["steps"] == 70
    assert "epochs" not in values(f"{common} --max_steps 70")
    assert values(f"{common} --max_steps -1")["epochs"] == 3.0
    unread = parse_script(f"{common} --max_steps $STEPS")
    assert "epochs" not in unread.values
    assert unread.doubts


def test_a_batch_that_may_be_of_one_gpu_or_of_all_is_asked_for() -> None:
    stated = parse_script("python train.py --model vgg16 --train_batch_size 64")
    assert "batch_size" not in stated.values
    assert "global_batch_size" in stated.problems[0].text


@pytest.mark.parametrize(
    ("launcher", "batch", "steps", "read"),
    [
        ("python", 1, 16, 1),
        ("torchrun --nproc_per_node 8", 1, 16, 1),
        ("python", 8, 16, 8),
        ("python", 32, 16, None),  # 2 or 32: some divide what they are told
        ("torchrun --nproc_per_node 8", 8, 16, None),
    ],
)
def test_no_gpu_has_less_than_a_sample_in_a_micro_step(
    launcher: str, batch: int, steps: int, read: int | None
) -> None:
    said = f"--train_batch_size {batch} --gradient_accumulation_steps {steps}"
    stated = parse_script(f"{launcher} train.py --model vgg16 {said}")
    assert stated.values.get("batch_size") == read
    asked = any(problem.field == "batch_size" for problem in stated.doubts)
    assert asked == (read is None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("python main.py -a vgg16 -b 256 data", 256),
        ("python main.py --arch vgg16 -b 256 --world-size 3 --multiprocessing-distributed", 768),
    ],
)
def test_the_imagenet_example_takes_the_batch_of_a_node(text: str, size: int) -> None:
    assert values(text)["global_batch_size"] == size


def test_the_imagenet_example_under_torchrun_is_asked_for_its_batch() -> None:
    stated = parse_script("torchrun --nproc_per_node 8 main.py -a vgg16 -b 256 data")
    assert "global_batch_size" not in stated.values
    assert stated.doubts


def test_two_like_commands_leave_the_length_open() -> None:
    stated = parse_script(f"python train.py {FLAGS}\npython train.py {FLAGS}")
    assert dict(stated.values) == {"model": "resnet50", "batch_size": 32}
    assert "several training commands" in stated.problems[0].text


@pytest.mark.parametrize(
    ("text", "epochs"),
    [
        ("if x; then {0} --resume; else {0}; fi", 90),
        ("case $1 in a) {0} ;; *) {0} --amp ;; esac", 90),
        ("if x; then srun {0}; else bash -c '{0}'; fi", 90),
        ("if x; then {0}; else {1}; fi", None),
        ("if x; then {0}; else python train.py --arch resnet50 -b 64; fi", None),
        ("if x; then {0}; fi\n{0}", None),
        ("if x; then {0}; else if y; then {0}; fi; {0}; fi", None),
        ("if x; then for i in 1 2; do {0}; done; else {0}; fi", None),
        ("[ -f x ] && {0}\n[ -f y ] && {0}", None),
    ],
)
def test_of_several_commands_in_branches_one_runs(text: str, epochs: int | None) -> None:
    command = "python train.py --arch resnet50 -b 64 --epochs"
    stated = parse_script(text.format(f"{command} 90", f"{command} 3"), ("job.sh",))
    assert (stated.values["model"], stated.values["batch_size"]) == ("resnet50", 64)
    assert stated.values.get("epochs") == epochs


def test_a_second_program_that_trains_leaves_the_length_open() -> None:
    stated = parse_script(f"python train.py {FLAGS}\npython finetune.py config.yaml")
    assert "epochs" not in stated.values
    assert stated.doubts


@pytest.mark.parametrize("begins", ["# PT", "#pt", "#pt:", "#  Pt"])
def test_a_line_that_only_looks_like_one_for_us_is_told(begins: str) -> None:
    told = [f"{p.origin}: {p.text}" for p in parse_script(f"{begins} batch=64\ntrue\n").problems]
    assert told == ["#PT: a line with `# PT` or `#pt` is a remark: begin it with `#PT`"]
    assert not parse_script("#PT batch=64\n# pt or tf, whatever = is\n# ptx a=b\n").problems


def test_pt_lines_go_before_flags_and_settle_their_problems() -> None:
    stated = parse_script(f"#PT batch=8 epochs=1\npython train.py {FLAGS} --seq-len 9 --epochs $E")
    assert (stated.values["batch_size"], stated.values["epochs"]) == (8, 1.0)
    assert [(p.field, p.contradiction) for p in stated.problems] == [("batch_size", True)]


def test_a_variable_known_from_the_submission_fills_a_flag() -> None:
    assert values("python train.py --epochs ${EPOCHS:-1}", EPOCHS="9") == {"epochs": 9.0}


def test_an_unknown_model_of_a_flag_is_kept_by_name() -> None:
    stated = parse_script("python train.py --model my_own_net --batch-size 4")
    assert stated.unknown_model == "my_own_net"


def test_every_flag_of_the_table_means_a_key_that_is_read() -> None:
    special = {
        "dtype",
        "amp_dtype",
        "input_size",
        "total_batch",
        "total_or_tokens",
        "node_batch",
        "accumulated_batch",
        "unclear_batch",
        "total_samples",
        "nodes",
        "config",
        "recompute",
        "attention",
        "strategy",
        "micro",
        "shared_accum",
        "source_len",
        "target_len",
        "model_path",
        "batch_tokens",
        "micro_of_total",
        "recipe",
        "bitsandbytes",
        "accelerated",
        "lora_targets",
        "milestones",
        "finetuning",
        "file",
        "agreed",
        "component",
        "wrapper",
        "adapters",
        "clip_model",
        "dataset_hint",
        "distilled",
        "tuned",
        "objective",
        "classes",
        "weights",
        "titan_flavor",
        "titan_model",
        "titan_shard",
        "fsdp_options",
        "resumed",
        "evaluation",
        "dataset_part",
        "dataset_path",
        "dataset_share",
        "frozen",
        "frozen_part",
        "decoder",
        "duration",
        "neox",
        "tied",
        "head_type",
        "quantised",
        "packed",
        "start_epoch",
        "other_batch",
        "staged_micro",
        "own_layers",
        "own_hidden",
    }
    table = flags()
    for family in (table.generic, *table.families):
        assert family.source
        for key in family.values.values():
            assert key in FIELD_OF or key in special or key.split(".")[0] in ("options", "variant")
        for key, text in family.switches.values():
            assert key in FIELD_OF
            assert text


def test_every_family_is_found_by_its_evidence() -> None:
    from predictor.identify.launch import family_of, launch_of

    for family in flags().families:
        flags_of = sorted(family.evidence)
        for first in range(len(flags_of)):
            few = (flags_of + flags_of)[first : first + family.least]
            words = [f"{flag}=1" for flag in few]
            program = next(iter(family.only), "x.py")
            if " " in few[0]:  # a program with a configuration from a folder
                program, _, folder = few[0].lstrip("/").partition(" ")
                words = [f"{folder}x.py"]
            elif few[0].endswith(".yaml"):  # the name of a configuration
                words = [f"--cfg={few[0].replace('.', 'v5.')}"]
            elif "-" not in few[0] and "." not in few[0]:  # a word of the program's name
                program, words = f"run_{few[0]}.py", []
            launch = launch_of(("python", program, *words))
            assert launch is not None
            assert set(few) & family_of(launch).evidence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--batch_size 8 --seq_len 512 --total_batch_size 262144", 512),
        ("--batch_size 8 --seq_len 512 --total_batch_size 1024", 1024),
        ("--batch_size 8 --total_batch_size 262144", None),
        ("--batch_size 4 --total_batch_size 32768", None),
        ("--batch_size 4 --seq_len 1024 --total_batch_size 32768", 32),
        ("--batch_size 32 --seq_len 512 --total_batch_size 32768", 32768),
    ],
)
def test_a_large_total_is_counted_in_tokens(text: str, said: int | None) -> None:
    found = parse_script(f"torchrun train.py --model gpt2 --num_iterations 900 {text}")
    assert found.values.get("global_batch_size") == said
    assert found.values["steps"] == 900
    assert any("tokens" in problem.text for problem in found.problems) == (said is None)


def test_a_command_in_a_text_is_run_by_eval() -> None:
    assert values(f'CMD="python run.py {FLAGS}"\necho $CMD\neval $CMD') == SAID
    assert values(f'eval "python run.py {FLAGS}"') == SAID


def test_a_module_of_deepspeed_is_the_program() -> None:
    flags_of = "--pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 2 --train_batch_size 64"
    found = values(f"deepspeed --module openrlhf.cli.train_sft {flags_of} --max_len 4096 --bf16")
    assert found["model"] == "qwen2.5-7b"
    assert (found["batch_size"], found["global_batch_size"], found["seq_len"]) == (2, 64, 4096)


def test_flags_of_openrlhf_say_the_same_with_dots() -> None:
    old = (
        "--pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 2 --train_batch_size 64 --zero_stage 3"
        " --max_epochs 2 --max_len 4096 --bf16 --flash_attn --gradient_checkpointing"
    )
    new = (
        "--model.model_name_or_path Qwen/Qwen2.5-7B --train.micro_batch_size 2"
        " --train.batch_size 64 --ds.zero_stage 3 --train.max_epochs 2 --data.max_len 4096"
        " --ds.param_dtype bf16 --ds.attn_implementation flash_attention_2"
        " --model.gradient_checkpointing_enable"
    )
    started = "deepspeed --module openrlhf.cli.train_sft"
    assert values(f"{started} {new}") == values(f"{started} {old}")


def test_the_batch_of_what_became_openrlhf_is_of_one_gpu() -> None:
    found = values(
        "deepspeed train_sft.py --pretrain meta-llama/Llama-2-7b-hf --train_batch_size 1"
        " --accumulated_gradient 16 --zero_stage 2 --max_epochs 1 --max_len 2048 --bf16"
    )
    assert (found["batch_size"], found["grad_accum"]) == (1, 16)
    assert "global_batch_size" not in found


def test_a_text_of_a_shell_has_the_arguments_behind_it() -> None:
    text = """bash -c 'python train.py --model resnet50 --batch-size ${1:-8} "${@:2}"' name"""
    assert values(text)["batch_size"] == 8
    assert values(f"{text} 16")["batch_size"] == 16


def test_minus_one_resumes_nothing() -> None:
    started = "python train.py --model resnet50 --epochs 9 --resume"
    assert dict(values(f"{started}=-1").get("options", ())) == {}
    assert dict(values(f"{started}=3")["options"]) == {"resumed": "on"}


@pytest.mark.parametrize(
    ("path", "resumed"),
    [
        ("/pretrained/model.safetensors", False),
        ("models/ffhq_p2.pt", False),
        ("pretrained/scale1-resumeflow-5d9d7964.pth", False),
        ("out/pretrain/checkpoint-799.pth", True),
        ("out/checkpoint-799.pth", True),
        ("out/last.pt", True),
        ("out/run-2022", True),
        ("model_0012.pth", True),
    ],
)
def test_weights_of_another_training_resume_nothing(path: str, resumed: bool) -> None:
    found = values(f"python train.py --model resnet50 --epochs 9 --resume {path}")
    assert (dict(found.get("options", ())) == {"resumed": "on"}) == resumed


def test_the_end_of_a_long_path_is_shown_as_one() -> None:
    path = "/long/way/to/somewhere/on/a/disk/where/the/data/is/mine.json"
    (problem,) = parse_script(f"python train.py --epochs 2 --train_data {path}").problems
    assert f"'...{path[-37:]}'" in problem.text


def test_weights_quantised_by_name_are_trained_through_adapters() -> None:
    name = "unsloth/Meta-Llama-3.1-8B-bnb-4bit"
    found = values(f"python tune_it.py --pretrained_model_name_or_path {name} --bs 4 --epoch 2")
    assert found["model"] == "llama3-8b"
    assert dict(found["options"]) == {"lora": "on", "quantized_base": "4bit"}
    assert (found["batch_size"], found["epochs"]) == (4, 2.0)


@pytest.mark.parametrize("flag", ["--adapter_name", "--sft_type", "--peft_method"])
def test_the_kind_of_adapter_is_read(flag: str) -> None:
    assert dict(values(f"python run.py {FLAGS} {flag} lora")["options"]) == {"lora": "on"}
    assert "options" not in values(f"python run.py {FLAGS} {flag} full")


def test_scripts_of_flax_compute_in_jax() -> None:
    command = "python run_mlm_flax.py --model_name_or_path roberta-base --max_seq_length 128"
    found = values(f"{command} --per_device_train_batch_size 32")
    assert (found["framework"], found["model"], found["seq_len"]) == ("jax", "roberta-base", 128)


def test_a_training_against_a_reward_model_has_that_objective() -> None:
    found = values(f"python rl.py {FLAGS} --reward_model_path x")
    assert dict(found["options"]) == {"objective": "preference"}


@pytest.mark.parametrize("flag", ["--num_ppo_epochs 4", "--num_ppo_epochs=1", "--ppo_epochs 1"])
def test_what_generates_in_its_loop_is_not_timed_by_its_steps(flag: str) -> None:
    assert not values(f"python rl.py {FLAGS} {flag}")


def test_the_base_transformer_of_fairseq_has_its_name() -> None:
    found = values("fairseq-train bin --arch transformer_wmt_en_de --max-update 500 --fp16")
    assert found["model"] == "transformer-base"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("python train.py --model bert-base --num_layers 2", None),
        ("python train.py --model bert-base --num-layers 12 --hidden_size 768", "bert-base"),
        ("python train.py --model vit-base-16 --embed-dim=192", None),
        ("python train.py --arch resnet50 --depth 50", "resnet50"),
        ("fairseq-train bin --arch transformer_wmt_en_de --encoder-layers 3", None),
        ("fairseq-train bin --arch transformer --max-tokens 4096", None),
    ],
)
def test_a_size_that_a_network_of_the_name_has_not_is_of_another(
    text: str, model: str | None
) -> None:
    found = parse_script(f"{text} --batch-size 32 --epochs 3")
    assert found.model == model
    assert bool(found.problems) == (model is None)


@pytest.mark.parametrize("name", ["chatbot", "benchmarking", "testing", "evaluating", "generating"])
def test_what_a_program_is_named_for_besides_training_is_none(name: str) -> None:
    text = f"deepspeed {name}.py --model_name_or_path gpt2 --batch_size 8"
    assert not parse_script(text).values
    assert parse_script(f"{text} --learning-rate 1e-4").model == "gpt2-124m"


def test_gluoncv_computes_in_mxnet() -> None:
    found = values(
        "horovodrun -np 64 python train_horovod.py --rec-train /data/ILSVRC2012/train.rec --use-rec"
        " --model resnet50_v1b --num-epochs 120 --batch-size 128 --warmup-epochs 5 --mixup"
    )
    assert (found["framework"], found["dataset"]) == ("mxnet", "imagenet-1k")
    assert (found["batch_size"], found["epochs"]) == (128, 120)


@pytest.mark.parametrize(
    ("flag", "what"),
    [
        ("--num_frames 16", "frames"),
        ("--num_mel_bins 128", "sound"),
        ("--roll_mag_aug True", "sound"),
        ("--sample-rate 16000", "sound"),
        ("--audio-path a", "sound"),
        ("--melt 3", ""),
        ("--norm pixels", ""),
    ],
)
def test_a_network_of_images_has_no_time_for_video_or_sound(flag: str, what: str) -> None:
    found = parse_script(f"torchrun train.py --model vit_huge_patch14 --bs 4 {flag}")
    assert ("model" in found.values) == (not what)
    assert any(p.contradiction and what in p.text for p in found.problems) == bool(what)


def test_a_size_of_images_may_stand_in_brackets() -> None:
    found = values("python train.py --model resnet50 --bs 4 --lr 1 --image_size '(224,224)'")
    assert found["image_size"] == (224, 224)


@pytest.mark.parametrize(
    ("launcher", "gpus"),
    [
        ("torchrun --nproc_per_node=6", 6),
        ("python -m torch.distributed.launch --nproc_per_node 4 --nnodes 2", 8),
        ("accelerate launch --num_processes 8 --num_machines 2", 8),
        ("deepspeed --num_gpus 2", 2),
        ("deepspeed --include localhost:0,1,5", 3),
        ("torchrun --nproc_per_node=4 --nnodes $NODES", None),
        ("deepspeed --num_gpus 2 --num_nodes 3", 6),
        ("deepspeed --num_gpus 2 --num_nodes $NODES", None),
        ("python", None),
        ("CUDA_VISIBLE_DEVICES=0,2,3 python", 3),
        ("CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python", None),
    ],
)
def test_a_launcher_says_how_many_gpus_work(launcher: str, gpus: int | None) -> None:
    assert parse_script(f"{launcher} run.py {FLAGS}").started == gpus
    if "=" not in launcher.split()[0]:
        assert parse_script("", (*launcher.split(), "run.py", *FLAGS.split())).started == gpus


def test_launchers_that_differ_say_no_number_of_gpus() -> None:
    two = (f"torchrun --nproc_per_node={n} run.py {FLAGS}" for n in (2, 4))
    assert parse_script("\n".join(two)).started is None


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("--bf16 --bs 8", "--bs 8", {"batch_size": 8}),
        ("--bs 8", "--bs 4 --seq-len 128", {}),
        ("--global-batch-size 64", "--batch-size 8", {}),
        ("--model gpt2 --bs 8", "--model mine/own --bs 8", {"batch_size": 8}),
        ("--model mine/own --bs 8", "--model mine/other --bs 8", {"batch_size": 8}),
        ("--use_lora --bs 8", "--use_lora --lora_r 8", {"options": (("lora", "on"),)}),
    ],
)
def test_what_only_some_trainings_state_is_not_said_of_the_job(
    first: str, second: str, told: dict[str, Any]
) -> None:
    for commands in ((first, second), (second, first), (first, second, first)):
        stated = parse_script("".join(f"python train.py {one}\n" for one in commands))
        assert stated.values == told
        assert stated.unknown_model is None
        assert any("differ in" in p.text or p.field == "model" for p in stated.problems)


def test_a_command_that_judges_takes_nothing_from_the_training() -> None:
    run = "python train.py --model gpt2 --bs 8 --bf16 --epochs 2"
    alone = parse_script(run).values
    assert parse_script(f"{run}\npython evaluate.py --model gpt2 --bs 64\n").values == alone


def test_data_of_one_training_are_not_those_of_the_others() -> None:
    run = "torchrun train.py --model resnet50 -b 8 --epochs 1"
    stated = parse_script(f"{run} --dataset imagenet\n{run} --dataset mine\n")
    assert "dataset" not in stated.values


@pytest.mark.parametrize(
    "command",
    [
        "python run.py --model resnet50 --epochs 0",
        "python run_sft.py --model gpt2 --do_train False --do_eval --max_steps 9 --bs 2",
        "python run_evalplus.py --steps 128 --batch-size 4",
    ],
)
def test_what_only_judges_is_no_training(command: str) -> None:
    assert not parse_script(command).values


def test_adapters_that_are_off_have_no_rank() -> None:
    command = "python train.py --model gpt2 --bs 2 --use_lora False --lora_r 8"
    assert "options" not in values(command)


def test_yolov5_is_named_by_its_configuration_before_its_weights() -> None:
    command = "python train.py --img 640 --batch 16 --epochs 3 --data coco.yaml"
    assert values(f"{command} --weights yolov5s.pt")["model"] == "yolov5s"
    assert values(f"{command} --weights yolov5s.pt --cfg yolov5x.yaml")["model"] == "yolov5x"
    assert "model" not in values(f"{command} --weights yolov5s.pt --cfg mine.yaml")


@pytest.mark.parametrize("share", ["1.0", "false", "full"])
def test_a_share_of_all_the_data_is_all(share: str) -> None:
    command = (
        f"python train.py --model resnet50 --bs 2 --epochs 3 --data-path cifar10 --subset {share}"
    )
    assert values(command)["dataset"] == "cifar10"


TRAINS = f"torchrun train.py {FLAGS}"


@pytest.mark.parametrize(
    ("text", "date", "build"),
    [
        (f"srun --container-image=nvcr.io#nvidia/pytorch:23.04-py3 {TRAINS}", 2023.33, "nvidia"),
        (
            f"srun --container-image nvcr.io_nvidia_pytorch_23.04-py3.sqsh {TRAINS}",
            2023.33,
            "nvidia",
        ),
        (
            f"I=nvcr.io/nvidia/pytorch:23.04-py3\nsrun --container-image $I {TRAINS}",
            2023.33,
            "nvidia",
        ),
        (
            f"#SBATCH --container-image=nvcr.io#nvidia/pytorch:23.04-py3 # pyxis\n{TRAINS}",
            2023.33,
            "nvidia",
        ),
        (
            f"#SBATCH --container-image=nvcr.io/nvidia/pytorch:23.04-py3\n{TRAINS}",
            2023.33,
            "nvidia",
        ),
        (f"singularity exec --nv pytorch_23.04-py3.sif {TRAINS}", 2023.33, "nvidia"),
        (f"apptainer exec docker://nvcr.io/nvidia/pytorch:23.04-py3 {TRAINS}", 2023.33, "nvidia"),
        (f"docker run nvcr.io/nvidia/pytorch:23.04-py3 bash -c '{TRAINS}'", 2023.33, "nvidia"),
        (f"docker run --rm pytorch/pytorch:1.13.1-cuda11.6 {TRAINS}", 2022.8, None),
        (f"docker run --rm me/train:23.04 {TRAINS}", None, None),
        (f"singularity exec --nv cuda11.4-ubuntu20.04.sif {TRAINS}", None, None),
        (f"srun --container-image=$IMAGE {TRAINS}", None, None),
    ],
)
def test_the_image_of_a_framework_dates_it(
    text: str, date: float | None, build: str | None
) -> None:
    found = values(f"#!/bin/bash\n{text}\n")
    assert SAID.items() <= found.items()
    assert found.get("framework_date") == (date and pytest.approx(date, abs=0.01))
    assert dict(found.get("options", ())).get("build") == build


def test_scripts_of_other_images_are_not_alike() -> None:
    old, new = (f"docker run --rm nvcr.io/nvidia/pytorch:{n}-py3 {TRAINS}" for n in (2204, 2304))
    old, new = (text.replace("220", "22.0").replace("230", "23.0") for text in (old, new))
    assert alike(old) != alike(new)


def test_a_batch_that_tokens_may_end_is_asked_for() -> None:
    text = "fairseq-train d --arch transformer_wmt_en_de --batch-size 256 --max-tokens 4096"
    assert "batch_size" not in values(text)
    assert [doubt.field for doubt in parse_script(text).doubts] == ["batch_size"]


@pytest.mark.parametrize(
    ("flags_said", "batch", "steps"),
    [
        ("--parallelism.pipeline_parallel_degree 4", 1, 32),
        (
            "--parallelism.pipeline_parallel_degree 4"
            " --parallelism.pipeline_parallel_microbatch_size 8",
            8,
            4,
        ),
        ("--parallelism.pipeline_parallel_microbatch_size 1", 32, None),
        ("--parallelism.pipeline_parallel_degree 1", 32, None),
    ],
)
def test_a_pipeline_of_torchtitan_cuts_its_batch(
    flags_said: str, batch: int, steps: int | None
) -> None:
    titan = "torchrun --nproc_per_node 8 -m torchtitan.train --training.local_batch_size 32"
    found = values(f"{titan} --model.name llama3 --model.flavor 8B --training.steps 9 {flags_said}")
    assert (found["batch_size"], found.get("grad_accum")) == (batch, steps)


@pytest.mark.parametrize(("copies", "read"), [(1, 8), (4, None)])
def test_a_batch_that_holds_a_sample_several_times_is_asked_for(
    copies: int, read: int | None
) -> None:
    text = f"python run_class_finetuning.py --batch_size 8 --num_sample {copies} --epochs 3"
    assert values(text).get("batch_size") == read
    assert bool(parse_script(text).doubts) == (read is None)


def test_what_prepares_weights_is_no_training() -> None:
    assert not values(
        "python scripts/pissa_init.py --model_name_or_path meta-llama/Meta-Llama-3-8B"
    )


@pytest.mark.parametrize(
    ("flags_given", "options"),
    [
        ("--tune_mm_vision False --tune_mm_llm True", (("frozen", "part"),)),
        ("--no-tune-llm", (("frozen", "part"),)),
        ("--tune_mm_vision True", None),
        ("--use_lora True --no-use-lora", None),
        ("--gradient_checkpointing --no-gradient-checkpointing", None),
    ],
)
def test_a_flag_that_is_negated_is_one_that_is_off(
    flags_given: str, options: tuple[tuple[str, str], ...] | None
) -> None:
    stated = parse_script(f"torchrun train.py --model gpt2 --bs 2 {flags_given}")
    assert stated.values.get("options") == options
    assert not stated.unclear


@pytest.mark.parametrize("flag", ["--data_max_length"])
def test_lengths_have_many_names(flag: str) -> None:
    assert values(f"torchrun train.py --model gpt2 --bs 2 {flag} 512")["seq_len"] == 512


@pytest.mark.parametrize(
    "command",
    [
        "python alignment.py --model gpt2 --batch_size 8 --dataset wikitext",
        "python txt2img.py --model stable-diffusion-v1-5 --steps 50 --batch_size 4",
        "accelerate launch scoring.py --model_name gpt2 --bs 8",
        "deepspeed run_model.py --model bloom --batch-size 8 --gen-len 32",
        "python main.py --model hf --model_args pretrained=gpt2 --batch_size 4",
    ],
)
def test_what_shows_no_sign_of_learning_is_no_training(command: str) -> None:
    assert not parse_script(command).values


@pytest.mark.parametrize(
    "command",
    ["python main.py --model gpt2 --bs 8", "python x.py --model gpt2 --bs 8 --weight_decay 0.1"],
)
def test_one_sign_of_learning_is_enough(command: str) -> None:
    assert values(command) == {"model": "gpt2-124m", "batch_size": 8}


@pytest.mark.parametrize(
    ("command", "batch_size"),
    [
        ("python train.py --gpu 0,1,2,3", None),
        ("python train.py --device 0,1,2,3", None),
        ("python train.py --gpus 4", None),
        ("python train.py --data_parallel", None),
        ("srun python train.py --gpus 4", None),
        ("python train.py --gpu 0", 64),
        ("python train.py --device cuda:1", 64),
        ("python train.py --devices 4 --accelerator gpu", 64),
        ("torchrun --nproc_per_node 4 train.py --gpus 4", 64),
    ],
)
def test_a_batch_of_one_process_on_several_gpus_may_be_of_all(
    command: str, batch_size: int | None
) -> None:
    stated = parse_script(f"{command} --model resnet50 --batch-size 64 --epochs 3")
    assert stated.values.get("batch_size") == batch_size
    assert bool(stated.doubts) == (batch_size is None)


@pytest.mark.parametrize(
    "command",
    [
        "deepspeed main.py --model_name_or_path gpt2 --deepspeed --zero_stage 2",
        "torchrun run.py --model_name_or_path gpt2 --enable_deepspeed",
        'torchrun train.py "${MORE[@]}" --model_name_or_path gpt2',
    ],
)
def test_what_decides_the_precision_out_of_sight_leaves_no_default(command: str) -> None:
    assert parse_script(f"{command} --per_device_train_batch_size 4").trainer is None


def test_a_batch_or_a_length_of_nothing_is_told() -> None:
    stated = parse_script("python train.py --model resnet50 --batch-size -1 --epochs 0")
    assert stated.model == "resnet50"
    assert {problem.field for problem in stated.doubts} == {"batch_size", "epochs"}
    steps = parse_script("python train.py --model gpt2 --bs 4 --num_train_epochs 0 --max_steps 9")
    assert steps.values["steps"] == 9
    assert not steps.doubts


@pytest.mark.parametrize(
    ("limit", "told"), [("4hours", True), ("90", False), ("1-12:00:00", False), ("4:30", False)]
)
def test_a_limit_that_sbatch_does_not_take_is_told(limit: str, told: bool) -> None:
    stated = parse_script(f"#!/bin/bash\n#SBATCH --time={limit}\npython train.py --model gpt2\n")
    assert any("--time=" in problem.text for problem in stated.problems) == told


def test_a_student_of_fewer_layers_is_another_network() -> None:
    command = "python train.py --model bert-base-uncased --teacher x --student_num_layers 6"
    assert "model" not in values(command)


def test_a_batch_of_llama2_accessory_is_of_one_gpu() -> None:
    found = values(
        "srun python main_finetune.py --llama_type llama --max_words 512 --batch_size 4"
        " --accum_iter 2 --epochs 1 --data_parallel sdp --checkpointing"
    )
    assert (found["batch_size"], found["grad_accum"], found["sharding"]) == (4, 2, "fsdp")
    assert found["options"] == (("act_ckpt", "on"),)
    found = values("torchrun train.py --use_activation_checkpointing True --batch_size 4")
    assert found["options"] == (("act_ckpt", "on"),)
    assert values("torchrun train.py --batch_size 4 --update_freq 8")["grad_accum"] == 8


def test_a_batch_in_the_section_of_halos_is_of_all_gpus() -> None:
    found = values(
        "accelerate launch launch.py loss=kto train_datasets=[x] ++loss.beta=0.1"
        " ++model.name_or_path=gpt2 ++model.batch_size=32"
    )
    assert (found["model"], found["global_batch_size"]) == ("gpt2-124m", 32)
    assert "batch_size" not in found


def test_run_squad_of_transformers_is_not_that_of_nvidia() -> None:
    squad = "python run_squad.py --model_name_or_path bert-base-uncased --num_train_epochs 2"
    stated = parse_script(f"{squad} --per_gpu_train_batch_size 4")
    assert (stated.values["batch_size"], stated.trainer) == (4, "hf-trainer")


@pytest.mark.parametrize(
    ("text", "epochs"),
    [
        ("align-cli sft --num_train_epochs 3 --learning_rate 1e-5", 3),
        ("srun align train --epochs 2 --lr 1", 2),
        ("align-cli sft --num_gpus 3", None),  # shows no sign of learning
        ("align-cli serve --epochs 3 --lr 1", None),
        ("bash ./run.sh train --epochs 3 --lr 1", None),
    ],
)
def test_a_command_of_a_program_that_trains_is_one(text: str, epochs: int | None) -> None:
    assert identify(argv=text.split()).values.get("epochs") == epochs


def test_a_program_hidden_in_a_variable_has_its_module() -> None:
    text = 'if [ "$1" = 1 ]; then run=python; else run="torchrun --nnodes 1"; fi\n'
    stated = identify(script=f"#!/bin/sh\n{text}$run -m gpn.run_mlm --max_steps 9 --lr 1 --bf16\n")
    assert stated.values["steps"] == 9


@pytest.mark.parametrize(
    ("launcher", "flags_said", "steps"),
    [
        ("python", "-bs 128 -mbs 2", 64),
        ("python", "--train_batch_size 128 --micro_batch_size 4", 32),
        ("python", "-bs 128 -mbs 2 --grad_accum 8", 8),
        ("torchrun --nproc_per_node 4", "-bs 128 -mbs 2 --grad_accum 8", 8),
        ("python", "-bs 128 -mbs 3", None),
        ("torchrun --nproc_per_node 4", "-bs 128 -mbs 2", None),
        ("torchrun --nproc_per_node 4", "--train_batch_size 128 --micro_batch_size 4", None),
        ("python", "-bs 128 -mbs 2 --devices 4", None),
    ],
)
def test_a_smaller_batch_beside_one_is_that_of_a_micro_step(
    launcher: str, flags_said: str, steps: int | None
) -> None:
    stated = parse_script(f"{launcher} mine.py {flags_said} --lr 1 --n_epochs 3")
    assert stated.values["batch_size"] in (2, 3, 4)
    assert stated.values.get("grad_accum") == steps
    asked = any(problem.field == "grad_accum" for problem in stated.doubts)
    assert asked == (steps is None)


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("--train_args_file", True),
        ("--experiment_config_file", True),
        ("--cfg", True),
        ("-c", True),
        ("--exp_file", True),
        ("--unet_config", False),
        ("--model-config", False),
        ("--label_params", False),
    ],
)
def test_a_configuration_is_told_by_the_form_of_its_flag(flag: str, named: bool) -> None:
    files = {"a/b.json": '{"num_train_epochs": 7}'}.get
    stated = identify(argv=f"python train.py {flag} a/b.json --lr 1".split(), files=files)
    assert (stated.values.get("epochs") == 7) == named


@pytest.mark.parametrize(
    ("asked", "before", "started"),
    [
        ("--nodes=3 --ntasks-per-node=8 --partition=gpu", "export MASTER_ADDR=here", 24),
        ("--nodes=3 --ntasks-per-node=8 --gres=gpu:8", "export MASTER_ADDR=here", None),
        ("--nodes=3 --ntasks-per-node=8 --gpus-per-task=1", "export MASTER_ADDR=here", None),
        ("--ntasks=1", "export MASTER_ADDR=here", None),
        ("--ntasks=8", "", None),  # copies that know nothing of each other
    ],
)
def test_tasks_that_train_together_have_a_gpu_each(
    asked: str, before: str, started: int | None
) -> None:
    text = f"#!/bin/bash\n#SBATCH {asked}\n{before}\nsrun python train.py {FLAGS}"
    assert parse_script(text).started == started


def test_where_adapters_would_be_is_nothing_where_they_are_off() -> None:
    for word, told in (("True", {"lora", "lora_rank", "lora_targets"}), ("False", set())):
        flags = f"is_peft={word} peft_config.r=8 peft_config.target_modules=all-linear"
        found = parse_script(f"accelerate launch train.py {FLAGS} {flags}")
        assert {name for name, _ in found.values.get("options", ())} == told


def test_what_fills_a_replay_plays_between_its_steps() -> None:
    assert not parse_script(f"python train.py {FLAGS} --prefill 5000").values
