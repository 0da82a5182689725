"""Bootstrap intervals: width, seeds, pairs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from arr_coc_lab.results.intervals import bootstrap_interval, paired_interval


class TestBootstrapInterval:
    def test_holds_the_mean_and_about_the_normal_width(self):
        values = np.tile([0.0, 1.0], 200)  # mean 1/2, standard error 0.5/sqrt(400) = 0.025
        low, high = bootstrap_interval(values)
        assert low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.006)
        assert high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.006)

    def test_two_values_have_three_means(self):
        # 00, 01, 10, 11 are equally likely: means 0, 1/2, 1 with 1/4, 1/2, 1/4
        assert bootstrap_interval([0, 1]) == (0.0, 1.0)
        assert bootstrap_interval([0, 1], level=0.4) == (0.5, 0.5)

    def test_the_same_twice_and_seeds_differ(self):
        values = list(np.random.default_rng(0).random(50))
        assert bootstrap_interval(values) == bootstrap_interval(np.array(values))
        assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)

    def test_same_draws_as_all_at_once(self):
        values = np.random.default_rng(3).random(37)
        means = values[np.random.default_rng(5).integers(0, 37, (2000, 37))].mean(1)
        assert bootstrap_interval(values, seed=5) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))))

    def test_a_higher_level_is_wider(self):
        values = np.random.default_rng(0).random(50)
        low, high = bootstrap_interval(values, level=0.99)
        inner_low, inner_high = bootstrap_interval(values, level=0.9)
        assert low < inner_low < values.mean() < inner_high < high

    def test_equal_values_and_one_value(self):
        assert bootstrap_interval([0.25] * 9) == (0.25, 0.25)
        assert bootstrap_interval([1]) == (1.0, 1.0)

    @pytest.mark.parametrize(
        ("values", "more", "message"),
        [
            ([], {}, r"shape \(0,\)"),
            ([[1, 0]], {}, r"shape \(1, 2\)"),
            ([1.0, float("nan")], {}, "value 1 is nan"),
            ([float("inf")], {}, "value 0 is inf"),
            ([1.0], {"level": 1.0}, "level 1.0"),
            ([1.0], {"level": 95}, "level 95"),
            ([1.0], {"draws": 0}, "draws 0"),
        ],
    )
    def test_bad_input(self, values, more, message):
        with pytest.raises(ValueError, match=message):
            bootstrap_interval(values, **more)


class TestGroups:
    def test_questions_that_go_together_count_once(self):
        values = np.random.default_rng(0).random(30)
        images = [f"{number // 4}.png" for number in range(120)]
        interval = bootstrap_interval(np.repeat(values, 4), images)
        assert interval == pytest.approx(bootstrap_interval(values))
        low, high = bootstrap_interval(np.repeat(values, 4))
        assert high - low < 0.6 * (interval[1] - interval[0])  # half: as if four times as many were known

    def test_a_group_counts_by_its_questions(self):
        # aa, ab, ba, bb: means 0, 3/4, 3/4, 1 with 1/4 each
        assert bootstrap_interval([0, 1, 1, 1], ["a", "b", "b", "b"], level=0.4) == (0.75, 0.75)
        assert bootstrap_interval([0, 1, 1, 1], ["a", "b", "b", "b"]) == (0.0, 1.0)

    def test_the_order_of_questions_says_nothing(self):
        values, images = [0.0, 1.0, 0.5, 1.0, 0.25], ["b", "a", "b", "c", "a"]
        again = [0, 2, 1, 4, 3]
        assert bootstrap_interval(values, images) == bootstrap_interval(
            [values[i] for i in again], [images[i] for i in again]
        )

    def test_of_one_group_its_values_are_drawn(self):
        assert bootstrap_interval([0, 1, 1], ["a"] * 3) == bootstrap_interval([0, 1, 1])

    def test_each_its_own_group_is_no_group(self):
        values = np.random.default_rng(1).random(20)
        assert bootstrap_interval(values, range(20)) == bootstrap_interval(values)

    def test_where_no_image_gains_on_average_few_intervals_say_so(self):
        """A change that an image's four questions share: 2 of 40 intervals are wrong, not two thirds."""
        rng, wrong = np.random.default_rng(0), 0
        for _ in range(40):
            change = np.repeat(rng.normal(size=40), 4)
            low, high = paired_interval(change, 0 * change, np.repeat(np.arange(40), 4).tolist(), draws=300)
            wrong += not low <= 0 <= high
        assert wrong <= 6

    def test_another_number_of_groups_is_refused(self):
        with pytest.raises(ValueError, match="1 groups can't be those of 2 values: name one for each"):
            bootstrap_interval([0, 1], ["a"])


class TestPairedInterval:
    def test_how_hard_a_question_is_cancels(self):
        rng = np.random.default_rng(0)
        hard = rng.random(200)
        assert paired_interval(hard + 0.125, hard) == pytest.approx((0.125, 0.125))
        low, high = bootstrap_interval(hard + 0.125)
        assert high - low > 0.05  # alone, the mean is far less certain

    def test_swapping_turns_the_sign(self):
        a, b = np.random.default_rng(1).random((2, 60))
        low, high = paired_interval(a, b)
        assert paired_interval(b, a) == pytest.approx((-high, -low))

    def test_different_numbers_are_refused(self):
        with pytest.raises(ValueError, match=r"\(2,\) and \(3,\).*same questions"):
            paired_interval([1, 0], [1, 0, 1])
        with pytest.raises(ValueError, match="shape"):
            paired_interval([], [])
