/* The rate of bf16 products on AMX tiles: 16 x 16 x 32 of them in one multiply. */
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/measure.h"

enum { CHAINS = 4 };

double measure_products_amx(long rounds)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64)));
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int i = 0; i < 8; i++) config.row_bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("" : : "r"(&config) : "memory"); /* gcc 12 thinks that only the first 8 bytes are read */
    _tile_loadconfig(&config);
    _tile_zero(4);
    _tile_zero(5);
    for (long r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    return CHAINS * 16.0 * 16 * 32 * 2;
}
