/* The AMX tier's table: AVX-512 with tiles of int8 and bf16. */
#include "backend/cpu/amx.h"

void cpu_kernels_amx(struct cpu_kernels *k)
{
    k->tier = CPU_AMX;
    k->matmul_q4_digits = cpu_q4_digits_amx;
    k->matmul_q8_digits = cpu_q8_digits_amx;
    k->matmul_q4_bf16 = cpu_q4_bf16_amx;
    k->round_bf16 = cpu_round_bf16_amx;
    k->place_bf16 = cpu_place_bf16_amx;
    k->gdn_chunk = cpu_gdn_chunk_amx;
    k->attention_fast = cpu_attention_amx;
}
