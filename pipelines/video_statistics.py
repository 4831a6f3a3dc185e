"""How long the ads in a video are watched, by the hour: told once, when nine of ten views are there."""

from ad_views import views

from tailrace import AtPercentile, Count, Fixed, Mean, Pipeline, Quantile, hours

by_video = Pipeline(
    name="video_statistics",
    log=views,
    key="video",
    what={
        "views": Count(),
        "mean": Mean("watched"),
        "median": Quantile("watched", 0.5),
        "p90": Quantile("watched", 0.9),
    },
    where=Fixed(hours(1)),
    when=AtPercentile(90),
    finishing="close",
)
