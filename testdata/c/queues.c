/* Queues and runners from C. */
#include "numbers.h"
#include <stdio.h>
#include <string.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, numbers_error()); \
            return 1; \
        } \
    } while (0)

int main(void) {
    numbers_model *numbers = numbers_load();
    CHECK(numbers != NULL);
    tfc_model *model = (tfc_model *)numbers;
    CHECK(tfc_signature_of(model)->entries[0].runner_count == 1);

    /* The call starts the runner that it waits for. */
    int64_t k = 0;
    CHECK(numbers_next(numbers, &k) == TFC_OK && k == 1);
    CHECK(numbers_next(numbers, &k) == TFC_OK && k == 2);
    CHECK(tfc_runners_stop(model) == TFC_OK);
    /* From the beginning. */
    CHECK(tfc_reset(model) == TFC_OK);
    CHECK(tfc_runners_start(model, tfc_find_entry(model, "next")) == TFC_OK);
    CHECK(numbers_next(numbers, &k) == TFC_OK && k == 1);
    /* Taken directly, two at once. */
    int counted = tfc_find_queue(model, "counted");
    int64_t both[2];
    tfc_tensor room = {TFC_I64, 0, NULL, both, sizeof both};
    CHECK(tfc_queue_take(model, counted, 2, &room, 1) == TFC_OK && both[0] == 2 && both[1] == 3);

    /* A queue that callers fill. */
    int pairs = tfc_find_queue(model, "pairs");
    CHECK(pairs >= 0 && tfc_find_queue(model, "pair") == -1);
    CHECK(strstr(numbers_error(), "did you mean `pairs`") != NULL);
    const int64_t shape[] = {2};
    const float x[] = {1.5f, 2};
    const int32_t i = 7;
    const tfc_feed element[] = {{TFC_F32, 1, shape, x, sizeof x}, {TFC_I32, 0, NULL, &i, sizeof i}};
    CHECK(tfc_queue_put(model, pairs, element, 1) == TFC_DATA);
    CHECK(tfc_queue_put(model, pairs, element, 2) == TFC_OK);
    CHECK(tfc_queue_size(model, pairs) == 1);
    CHECK(tfc_queue_close(model, pairs) == TFC_OK);
    float sum = 0;
    int32_t j = 0;
    CHECK(numbers_total(numbers, &sum, &j) == TFC_OK && sum == 3.5f && j == 7);
    /* Nothing more comes: an end, not an error and not a wait. */
    CHECK(numbers_total(numbers, &sum, &j) == TFC_END);

    /* A wait with an end. */
    CHECK(tfc_reset(model) == TFC_OK);
    CHECK(tfc_limit(model, 1, NULL) == TFC_OK);
    CHECK(numbers_total(numbers, &sum, &j) == TFC_DATA);
    CHECK(strcmp(tfc_error_code(model), "E0525") == 0);
    tfc_token *token = tfc_token_new(model);
    CHECK(tfc_limit(model, -1, token) == TFC_OK && tfc_cancel(model, token) == TFC_OK);
    tfc_token_free(model, token);
    CHECK(numbers_total(numbers, &sum, &j) == TFC_DATA);
    CHECK(strcmp(tfc_error_code(model), "E0524") == 0);
    CHECK(tfc_limit(model, -1, NULL) == TFC_OK);

    numbers_free(numbers);
    puts("ok");
    return 0;
}
