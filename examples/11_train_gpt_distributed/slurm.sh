#!/bin/bash
# 11_train_gpt_distributed under Slurm, on two nodes with 8 devices each:
#
#   sbatch slurm.sh
#
# srun starts every rank. Where a lost node should not end the job, start one bp-launch on each node
# instead, as the second command does.
#SBATCH --job-name=train-gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
set -euo pipefail

train=(11_train_gpt_distributed --device 'cuda:{}' --strategy fsdp
  --checkpoint "$SLURM_SUBMIT_DIR/run1/" --save-every 50)

if [[ ${ELASTIC:-0} == 0 ]]; then
  # read_launch() finds rank 0 in the list of nodes, and makes the port from the number of the job.
  exec srun --kill-on-bad-exit=1 "${train[@]}"
fi
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# The variables are those of the node on which the launcher runs.
exec srun --ntasks-per-node=1 --kill-on-bad-exit=0 bash -c '
  exec bp-launch -n 8 --nnodes 1:"$SLURM_NNODES" --node-rank "$SLURM_NODEID" --max-restarts 10 \
    --rdzv-endpoint "$0:29400" --rdzv-id "$SLURM_JOB_ID" --local-addr "$SLURMD_NODENAME" "$@"' \
  "$head" "${train[@]}"
