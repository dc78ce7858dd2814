/* A processor's part that a host without AMX lacks: on the signal for an unknown instruction, those on tiles are done here.
 *
 * The operations and the conditions of faults are those of Intel's manual (volume 2, "Intel AMX instruction set reference").
 * A condition of a fault ends the process with a line that says which. Each thread has tiles of its own. Limitation: only
 * addresses of 64 bits without segments, as LLVM writes them; bytes of a fault are not put back.
 */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { TILES = 8, ROWS = 16, ROW = 64 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
} Config;

static __thread Config config;
static __thread uint8_t tiles[TILES][ROWS][ROW];
static struct sigaction before;
static uint64_t products, configurations, releases;

static void fault(const char *why, const char *instruction) {
    char line[200];
    int length = snprintf(line, sizeof line, "tile_emulator: %s: %s\n", instruction, why);
    if (write(2, line, (size_t)length) < 0)
        _exit(99);
    abort();
}

static void require(int holds, const char *why, const char *instruction) {
    if (!holds)
        fault(why, instruction);
}

static void require_tile(int tile, const char *name) {
    require(config.palette != 0, "#UD, no tiles are configured", name);
    require(tile < TILES, "#UD, there is no such tile", name);
    require(config.rows[tile] != 0, "#UD, the tile is not configured", name);
}

static void load_config(const uint8_t *from) {
    Config new;
    memcpy(&new, from, sizeof new);
    require(new.palette <= 1, "#GP, unknown palette", "ldtilecfg");
    if (new.palette != 0) {
        for (unsigned i = 0; i < sizeof new.reserved; i++)
            require(new.reserved[i] == 0, "#GP, reserved bytes are not zero", "ldtilecfg");
        require(new.start_row == 0, "kernels begin at row 0", "ldtilecfg");
        for (int i = 0; i < 16; i++) {
            require(i < TILES || (new.colsb[i] == 0 && new.rows[i] == 0), "#GP, there is no such tile", "ldtilecfg");
            require(new.colsb[i] <= ROW && new.rows[i] <= ROWS, "#GP, a tile is too large", "ldtilecfg");
            require((new.colsb[i] == 0) == (new.rows[i] == 0), "#GP, a tile has rows or columns only", "ldtilecfg");
        }
    } else {
        memset(&new, 0, sizeof new);
    }
    config = new;
    memset(tiles, 0, sizeof tiles);
}

static float flushed(float x) {
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}

static float bfloat_at(const uint8_t *at) {
    uint32_t bits = 0;
    float x;
    memcpy((uint8_t *)&bits + 2, at, 2);
    memcpy(&x, &bits, sizeof x);
    return flushed(x);
}

/* Even and odd factors are summed apart, then together, then added: each step is rounded to even, and small numbers are 0. */
static void multiply_bfloats(int to, int left, int right) {
    for (int m = 0; m < config.rows[to]; m++) {
        float sums[ROW / 2] = {0};
        for (int k = 0; k < config.colsb[left] / 4; k++)
            for (int n = 0; n < config.colsb[to] / 4; n++)
                for (int odd = 0; odd < 2; odd++) {
                    float x = bfloat_at(&tiles[left][m][4 * k + 2 * odd]), y = bfloat_at(&tiles[right][k][4 * n + 2 * odd]);
                    sums[2 * n + odd] = flushed(fmaf(x, y, sums[2 * n + odd]));
                }
        for (int n = 0; n < config.colsb[to] / 4; n++) {
            float total;
            memcpy(&total, &tiles[to][m][4 * n], 4);
            total = flushed(flushed(total) + flushed(sums[2 * n] + sums[2 * n + 1]));
            memcpy(&tiles[to][m][4 * n], &total, 4);
        }
    }
}

static void multiply_bytes(int to, int left, int right, int left_signed, int right_signed) {
    for (int m = 0; m < config.rows[to]; m++)
        for (int n = 0; n < config.colsb[to] / 4; n++) {
            uint32_t total;
            memcpy(&total, &tiles[to][m][4 * n], 4);
            for (int k = 0; k < config.colsb[left]; k++) {
                uint8_t x = tiles[left][m][k], y = tiles[right][k / 4][4 * n + k % 4];
                total += (uint32_t)((left_signed ? (int8_t)x : (int)x) * (right_signed ? (int8_t)y : (int)y));
            }
            memcpy(&tiles[to][m][4 * n], &total, 4);
        }
}

static void multiply(int opcode, int prefix, int to, int left, int right) {
    const char *name = opcode == 0x5C ? "tdpbf16ps" : "tdpb**d";
    require_tile(to, name), require_tile(left, name), require_tile(right, name);
    require(to != left && to != right && left != right, "#UD, one tile in two places", name);
    require(!(config.colsb[to] % 4 || config.colsb[left] % 4 || config.colsb[right] % 4), "#UD, parts of 4 bytes", name);
    require(config.rows[to] == config.rows[left], "#UD, rows of the sums are not those on the left", name);
    require(config.colsb[left] / 4 == config.rows[right], "#UD, columns on the left are not rows on the right", name);
    require(config.colsb[to] == config.colsb[right], "#UD, columns of the sums are not those on the right", name);
    for (int row = config.rows[to]; row < ROWS; row++)
        memset(tiles[to][row], 0, ROW);
    __atomic_add_fetch(&products, 1, __ATOMIC_RELAXED);
    if (opcode == 0x5C)
        multiply_bfloats(to, left, right);
    else /* 0: u8 by u8, 1 (66): u8 by s8, 2 (F3): s8 by u8, 3 (F2): s8 by s8 */
        multiply_bytes(to, left, right, prefix >= 2, prefix % 2);
}

static const int REGISTERS[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

/* The place in memory that an instruction names: its address without the index, the index times its scale, its length. */
typedef struct {
    uint64_t address, index;
    int length, has_sib;
} Place;

static Place place_of(const uint8_t *modrm, const greg_t *registers, int x, int b) {
    Place found = {0, 0, 1, (modrm[0] & 7) == 4};
    int mod = modrm[0] >> 6, base = (modrm[0] & 7) | b << 3, no_base = 0;
    int32_t distance = 0;
    if (found.has_sib) {
        uint8_t sib = modrm[found.length++];
        int index = (sib >> 3 & 7) | x << 3;
        if (index != 4)
            found.index = (uint64_t)registers[REGISTERS[index]] << (sib >> 6);
        base = (sib & 7) | b << 3;
        no_base = (sib & 7) == 5 && mod == 0;
    }
    int after_instruction = !found.has_sib && (modrm[0] & 7) == 5 && mod == 0;
    if (mod == 1) {
        distance = (int8_t)modrm[found.length++];
    } else if (mod == 2 || no_base || after_instruction) {
        memcpy(&distance, modrm + found.length, 4);
        found.length += 4;
    }
    found.address = (uint64_t)(int64_t)distance;
    if (after_instruction)
        found.address += (uint64_t)(modrm + found.length);
    else if (!no_base)
        found.address += (uint64_t)registers[REGISTERS[base]];
    return found;
}

/* Do one instruction and return its length, 0 if it is none on tiles. */
static int step(const uint8_t *code, const greg_t *registers) {
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || (code[2] & 0x84) != 0)
        return 0;
    int prefix = code[2] & 3, vvvv = ~(code[2] >> 3) & 15, opcode = code[3];
    const uint8_t *modrm = code + 4;
    int r = !(code[1] & 0x80), mod = modrm[0] >> 6, reg = (modrm[0] >> 3 & 7) | r << 3, rm = modrm[0] & 7;
    int x = !(code[1] & 0x40), b = !(code[1] & 0x20);
    if ((opcode == 0x5C && prefix == 2) || opcode == 0x5E) {
        if (mod != 3)
            return 0;
        multiply(opcode, prefix, reg, rm | b << 3, vvvv);
        return 5;
    }
    if ((opcode != 0x49 && opcode != 0x4B) || vvvv != 0)
        return 0;
    if (opcode == 0x49 && mod == 3) {
        if (prefix == 3) {
            require_tile(reg, "tilezero");
            memset(tiles[reg], 0, sizeof tiles[reg]);
        } else if (prefix == 0 && modrm[0] == 0xC0) {
            __atomic_add_fetch(&releases, config.palette != 0, __ATOMIC_RELAXED);
            memset(&config, 0, sizeof config);
            memset(tiles, 0, sizeof tiles);
        } else {
            return 0;
        }
        return 5;
    }
    Place place = place_of(modrm, registers, x, b);
    uint8_t *memory = (uint8_t *)(place.address + (opcode == 0x49 ? place.index : 0));
    if (opcode == 0x49) {
        if (reg != 0 || prefix > 1)
            return 0;
        if (prefix == 0) {
            __atomic_add_fetch(&configurations, config.palette == 0, __ATOMIC_RELAXED);
            load_config(memory);
        } else {
            memcpy(memory, &config, sizeof config);
        }
    } else {
        const char *name = prefix == 2 ? "tilestored" : "tileloadd";
        require(prefix != 0 && mod != 3, "no such instruction", name);
        require(place.has_sib, "#UD, no distance from row to row", name);
        require_tile(reg, name);
        for (int row = 0; row < ROWS; row++) {
            uint8_t *at = memory + (int64_t)place.index * row;
            if (prefix == 2) {
                if (row < config.rows[reg])
                    memcpy(at, tiles[reg][row], config.colsb[reg]);
            } else {
                memset(tiles[reg][row], 0, ROW);
                if (row < config.rows[reg])
                    memcpy(tiles[reg][row], at, config.colsb[reg]);
            }
        }
    }
    return 4 + place.length;
}

static void on_signal(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    int length = step((const uint8_t *)registers[REG_RIP], registers);
    (void)info;
    if (length == 0)
        sigaction(number, &before, NULL); /* the instruction is met again */
    registers[REG_RIP] += length;
}

int install(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    return sigaction(SIGILL, &action, &before);
}

/* Products so far, and how many configurations of all threads were not released. */
uint64_t count_products(void) { return __atomic_load_n(&products, __ATOMIC_RELAXED); }
uint64_t count_unreleased(void) {
    return __atomic_load_n(&configurations, __ATOMIC_RELAXED) - __atomic_load_n(&releases, __ATOMIC_RELAXED);
}
