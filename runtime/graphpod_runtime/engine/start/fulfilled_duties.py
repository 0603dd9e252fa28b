"""What rules ask of the engine beyond capturing, and how it is done here. A duty that is not done ends the start."""

from graphpod_policy import Duty, ExitCode, Plan
from graphpod_runtime.base.failure import StartFailure

DONE: dict[Duty, str] = {
    Duty.SameLadderEverywhere: "ranks plan by the least that any has, and agree after each size (`Ranks.agreed`)",
    Duty.StaticStageBuffers: "states are received into the buffers that graphs read, before a replay (`StageGraphs`)",
    Duty.FinalScales: "scales of weights and KV cache are loaded with the weights, before anything is captured",
    Duty.LoadsInBreaks: "a pass is put behind the loads of its pages (`Runner.launch`), so before its breaks",
    Duty.LoadsBeforeReplay: "a pass is put behind the loads of its pages before it begins (`Runner.launch`)",
    Duty.JoinAfterLoad: "a prompt is prefilled, so joins decode, when its pages have come (`KvSpace.there`)",
    Duty.VerifyWidth: "a decode graph of n sequences is captured for n times the rows of one (`Plan.rows`)",
    Duty.HiddenStatesOut: "prefill graphs leave the body's rows, decode graphs too, next to the logits (`DecodePass`)",
    Duty.AuxiliaryStatesOut: "bodies return the states of the layers that the head reads (`DecoderBody.read_layers`)",
    Duty.ModelDtypeOutput: "the break arena's output slot has the model's element type",
}
"""Duties that this engine does, each with where."""


def accept(plan: Plan) -> None:
    """StartFailure when `plan` asks for what is not in the table: nothing is accepted and ignored."""
    for phase, duties in plan.duties.items():
        for duty in duties:
            if duty not in DONE:
                raise StartFailure(
                    ExitCode.FeatureNotBuilt,
                    f"{phase}: the plan asks the engine for {duty.value}, which this version does not do; "
                    f"set spec.graph.{phase}: Disabled, or remove the feature whose rule requires it "
                    "(graphpod explain names it)",
                )
