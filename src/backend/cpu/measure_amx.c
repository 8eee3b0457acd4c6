/* The rate of bf16 products on AMX tiles: 16 x 16 x 32 of them in one multiply. */
#include "backend/cpu/amx.h"
#include "backend/cpu/measure.h"

enum { CHAINS = 4 };

double measure_products_amx(long rounds)
{
    tiles_configure(0, TILE_ROWS);
    _tile_zero(4);
    _tile_zero(5);
    for (long r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    return CHAINS * 2.0 * TILE_ROWS * TILE_ROWS * STRIP_COLS;
}
