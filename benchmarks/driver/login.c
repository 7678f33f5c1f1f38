/* The CONNECT of a client: without a user, with name and password, or with credentials (a token and a seed). */
#include "login.h"

#include "util.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TOKEN_MAX 4096
#define SEED_SIZE 36        /* two bytes of prefix, 32 of the seed, two of the checksum */
#define SIGNATURE_SIZE 64

#ifdef NATSLOAD_OPENSSL
#include <openssl/evp.h>

static void sign(const unsigned char *seed, const char *text, size_t size, unsigned char *signature) {
    size_t len = SIGNATURE_SIZE;
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!key || !context || EVP_DigestSignInit(context, NULL, NULL, NULL, key) != 1 ||
        EVP_DigestSign(context, signature, &len, (const unsigned char *)text, size) != 1)
        fail("the nonce is not signed");
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
}
#else
static void sign(const unsigned char *seed, const char *text, size_t size, unsigned char *signature) {
    (void)seed, (void)text, (void)size, (void)signature;
    fail("the driver was built without OpenSSL: install its headers (libssl-dev) and remove build/benchmarks");
}
#endif

/* Read the line after `mark` in the text of a credentials file. */
static void line_after(const char *text, const char *mark, char *out, size_t room) {
    const char *at = strstr(text, mark), *start = at ? strchr(at, '\n') : NULL;
    size_t len = start ? strcspn(start + 1, "\r\n") : 0;
    if (!len || len >= room)
        fail("credentials: nothing after %s", mark);
    memcpy(out, start + 1, len);
    out[len] = 0;
}

static void read_credentials(const char *path, char *token, char *seed) {
    char text[2 * TOKEN_MAX];
    FILE *file = fopen(path, "r");
    if (!file)
        fail("--creds %s: not readable", path);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    line_after(text, "BEGIN NATS USER JWT", token, TOKEN_MAX);
    line_after(text, "BEGIN USER NKEY SEED", seed, 100);
}

/* Decode the base32 of a seed. */
static void decode_seed(const char *text, unsigned char *out) {
    static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    uint64_t bits = 0;
    int held = 0, made = 0;
    for (; *text && made < SEED_SIZE; text++) {
        const char *found = strchr(ALPHABET, *text);
        if (!found)
            fail("credentials: the seed is not base32");
        bits = bits << 5 | (uint64_t)(found - ALPHABET);
        held += 5;
        if (held >= 8)
            out[made++] = (unsigned char)(bits >> (held -= 8));
    }
    if (made != SEED_SIZE)
        fail("credentials: a seed of %d bytes", made);
}

/* Write base64 for URLs, without padding. */
static void encode(const unsigned char *data, size_t size, char *out) {
    static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    int held = 0;
    for (size_t i = 0; i < size; i++) {
        bits = bits << 8 | data[i];
        for (held += 8; held >= 6;)
            *out++ = ALPHABET[bits >> (held -= 6) & 63];
    }
    if (held)
        *out++ = ALPHABET[bits << (6 - held) & 63];
    *out = 0;
}

/* Write the fields "jwt" and "sig" for the nonce in INFO. */
static int token_fields(const char *path, const char *info, size_t info_len, char *out, size_t room) {
    static const char NONCE[] = "\"nonce\":\"";
    char token[TOKEN_MAX], seed_text[100], text[2 * SIGNATURE_SIZE];
    unsigned char seed[SEED_SIZE], signature[SIGNATURE_SIZE];
    const char *nonce = memmem(info, info_len, NONCE, sizeof NONCE - 1);
    if (!nonce)
        fail("no nonce in INFO: the server has no users with tokens");
    nonce += sizeof NONCE - 1;
    const char *end = memchr(nonce, '"', (size_t)(info + info_len - nonce));
    read_credentials(path, token, seed_text);
    decode_seed(seed_text, seed);
    sign(seed + 2, nonce, end ? (size_t)(end - nonce) : 0, signature);
    encode(signature, sizeof signature, text);
    return snprintf(out, room, ",\"jwt\":\"%s\",\"sig\":\"%s\"", token, text);
}

size_t connect_line(const struct options *o, const char *info, size_t info_len, char *out) {
    int n = snprintf(out, CONNECT_MAX,
                     "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,"
                     "\"protocol\":1,\"lang\":\"c\",\"name\":\"natsload\",\"version\":\"1\"");
    if (o->user)
        n += snprintf(out + n, CONNECT_MAX - (size_t)n, ",\"user\":\"%s\",\"pass\":\"%s\"", o->user,
                      o->password ? o->password : "");
    if (o->creds)
        n += token_fields(o->creds, info, info_len, out + n, CONNECT_MAX - (size_t)n);
    n += snprintf(out + n, CONNECT_MAX - (size_t)n, "}\r\n");
    if (n >= CONNECT_MAX)
        fail("a CONNECT of %d bytes", n);
    return (size_t)n;
}
