"""The Python client against the program's documents: ECHELON_PLAN names the program to start."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import echelon  # noqa: E402

LOGS = ROOT / "tests" / "fuzz" / "corpus" / "training_log"


class Contract(unittest.TestCase):
    def test_a_search_is_candidates_with_a_winner(self):
        answer = echelon.plan(model="7b", gpus=8, no_config=True)
        winner = answer.winner
        self.assertTrue(winner.fits)
        layout = winner.plan
        self.assertEqual(layout.tp * layout.cp * layout.pp * layout.dp, 8)
        self.assertEqual(sum(layout.layers_per_stage), 32)
        self.assertGreater(winner.time.step_seconds, 0)
        self.assertLessEqual(winner.time.low_seconds, winner.time.step_seconds)
        self.assertLess(winner.memory.peak_bytes, winner.memory.capacity_bytes)
        self.assertEqual(answer.proved_optimal, answer.raw["certificate"]["proved_optimal"])
        self.assertIn(str(layout), answer._repr_html_())
        self.assertEqual(answer.raw["winner"]["plan"]["tp"], layout.tp)

    def test_a_prediction_is_one_candidate_of_its_flags(self):
        one = echelon.predict(
            model="7b", gpus=8, tp=2, sequence_parallel=True, zero=1, microbatch=1, no_config=True
        )
        self.assertEqual((one.plan.tp, one.plan.dp, one.plan.zero), (2, 4, 1))
        self.assertTrue(one.plan.sequence_parallel)
        other = echelon.predict(
            model="7b", gpus=8, tp=2, sequence_parallel=False, zero=1, microbatch=1, no_config=True
        )
        self.assertFalse(other.plan.sequence_parallel)
        self.assertIn("<td>", one._repr_html_())

    def test_nothing_that_fits_is_an_answer(self):
        answer = echelon.plan(model="gpt3-175b", gpus=1, no_config=True)
        self.assertIsNone(answer.winner)
        self.assertIn("No plan fits", answer._repr_html_())

    def test_wrong_input_raises_the_message_of_the_program(self):
        with self.assertRaisesRegex(echelon.PlanError, "llama3-8b") as caught:
            echelon.plan(model="llama3-8x", gpus=8)
        self.assertEqual(caught.exception.exit_code, 2)
        with self.assertRaises(echelon.PlanError) as caught:
            echelon.plan(model="7b", gpus=8, program="/no/such/plan")
        self.assertEqual(caught.exception.exit_code, 3)

    def test_a_log_is_found_and_derived_facts_with_a_measured_step(self):
        log = echelon.import_log(LOGS / "megatron_core.log", cluster="dgx-b200")
        self.assertEqual(log.framework, "megatron-lm")
        self.assertEqual((log.found["tp"], log.found["seq"]), (2, 4096))
        self.assertAlmostEqual(log.measured.step_seconds, 0.7255, delta=0.002)
        self.assertEqual(log.measured.memory_kind, "allocated")
        self.assertEqual((log.plan.tp, log.plan.dp), (2, 4))
        self.assertEqual(log.ask, [])
        self.assertIsNone(log.refused)
        self.assertIn("0.7255"[:3], f"{log.measured.step_seconds}")
        asked = echelon.import_log(LOGS / "llm_q.log")
        self.assertIn("--model NAME|FILE", asked.ask)
        self.assertIsNone(asked.plan)

    def test_a_document_without_a_key_of_the_contract_is_noticed(self):
        with self.assertRaisesRegex(KeyError, "step_seconds"):
            echelon.Search.from_json(
                {
                    "winner": {
                        "plan": echelon.predict(
                            model="7b", gpus=8, dp=8, no_config=True
                        ).plan.raw,
                        "time": {},
                    },
                    "candidates": [],
                    "pareto": [],
                    "certificate": {"proved_optimal": True},
                }
            )

    def test_the_catalog_has_models(self):
        self.assertIn("llama3-8b", echelon.models())


if __name__ == "__main__":
    unittest.main()
