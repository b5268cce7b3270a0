from concurrent.futures import ThreadPoolExecutor

from threadpoolctl import threadpool_info

from search.sequential.evidence import Evidence


def test_searches_at_once_have_one_thread_each_and_restore_the_number_of_threads():
    before = threadpool_info()

    def limited(_):
        with Evidence.one_thread():
            pools = threadpool_info()
            return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}

    with ThreadPoolExecutor(4) as threads:
        assert set().union(*threads.map(limited, range(100))) == {1}
    assert threadpool_info() == before
